"""The commands of `commands.toml`: what each reads, and how it runs in this process."""

import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import torch.distributed as dist

from common.command_line import in_one_line
from common.errors import UserError
from pipeline import reproduce
from pipeline.checkpoint import files
from pipeline.checkpoint.manifest import DamagedCheckpoint
from pipeline.distributed.control import ControlGroup
from pipeline.distributed.query import read_hostfile
from pipeline.finetuning import command as finetuning
from pipeline.paper.experiments import Stage
from pipeline.pretraining import command as pretraining
from pipeline.pretraining import host_data
from pipeline.settings import finetune as finetune_flags
from pipeline.settings import pretrain as pretrain_flags

Run = Callable[[Sequence[str]], object]


def _load_checkpoint(words: Sequence[str]) -> None:
    """What a resumed run reads of a checkpoint before it has an engine."""
    tag = Path(words[0])
    try:
        verified = files.verify_share(tag, 0, 1)
        with files.CheckpointReader(tag, verified.manifest) as reader:
            for name, tensor in verified.manifest.tensors.items():
                for _, start, length in tensor.pieces:
                    for kind in ("weight", "exp_avg"):
                        reader.read(name, kind, start, length)
    except DamagedCheckpoint as error:
        raise UserError(str(error)) from None


def _reproduce(words: Sequence[str]) -> int | None:
    """`pipeline.reproduce`, whose commands do nothing: they are commands of this list, or take hours."""
    stages = reproduce.stages

    def idle(*arguments: Any) -> list[Stage]:
        return [tuple(replace(command, argv=("true",)) for command in stage) for stage in stages(*arguments)]

    with mock.patch("pipeline.reproduce.stages", idle):
        return reproduce.main(words)


def _stage(words: Sequence[str]) -> None:
    """What `--stage` does with shards before training."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    host_data.prepare([Path(words[0])], Path(words[1]), ControlGroup(), host_data.Share(0, 1))


PARTS: dict[str, Run] = {
    "load_checkpoint": _load_checkpoint,
    "read_hosts": lambda words: read_hostfile(Path(words[1])),
    "prepare_pretraining": lambda words: pretraining.prepare(pretrain_flags.parse(words), 1),
    "prepare_finetuning": lambda words: finetuning.prepare(finetune_flags.parse(words), 1),
    "reproduce": _reproduce,
    "stage": _stage,
}
"""Parts of commands that read files, in which a mistake is one line."""


@dataclass(frozen=True)
class Command:
    """A command of `commands.toml`, which explains the attributes."""

    name: str
    words: str
    reads: str
    output: str = "out"
    part: str = ""
    refuses: bool = False
    keeps: bool = False
    idle: bool = False
    slow: bool = False

    def run(self, root: Path) -> int:
        """Runs it in this process on the inputs below `root`, and returns the exit status."""
        module, *words = self.arguments(root)
        if self.part:
            result = in_one_line(lambda: _no_status(PARTS[self.part], words))
        elif module == "data_prep":
            sys.argv = [module, *words]
            result = import_module("data_prep.__main__").entry()
        else:
            result = import_module(module).main(words)
        return result or 0

    def arguments(self, root: Path) -> list[str]:
        """The words with the root in its places."""
        return [word.replace("@", str(root)) for word in self.words.split()]

    def inputs(self) -> set[str]:
        """The directories below the root that hold its inputs."""
        named = (word.partition("@/")[2] for word in self.words.split())
        return {Path(name).parts[0] for name in (*named, *self.reads.split()) if name}


def _no_status(part: Run, words: Sequence[str]) -> int | None:
    """Runs a part, whose result is no exit status unless it is a number."""
    result = part(words)
    return result if isinstance(result, int) else None


def _read_commands() -> dict[str, Command]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    commands = {}
    for name, entry in table["commands"].items():
        for group in ("metrics", *table["groups"]):  # $metrics holds $run
            entry["reads"] = entry["reads"].replace(f"${group}", table["groups"][group])
        commands[name] = Command(name, **entry)
    return commands


COMMANDS = _read_commands()
