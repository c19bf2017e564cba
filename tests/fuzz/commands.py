"""The commands that are tried, and the files that each of them reads."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from common.command_line import in_one_line
from common.errors import UserError
from data_prep import __main__ as data_prep
from pipeline import evaluate, export, finetune, plan, predict, pretrain, report, reproduce, show
from pipeline.checkpoint import files, retention
from pipeline.checkpoint.manifest import DamagedCheckpoint
from pipeline.distributed.query import read_hostfile
from pipeline.finetuning import command as finetuning
from pipeline.paper.experiments import Stage
from pipeline.pretraining import command as pretraining
from pipeline.settings import finetune as finetune_flags
from pipeline.settings import pretrain as pretrain_flags
from tests.fuzz.inputs import TINY_MODEL
from tests.pipeline.tasks.own_files import DIRECTORIES

OUT = "out"
"""Where most commands write, below the root of the inputs."""
Run = Callable[[Sequence[str]], int | None]


def _data_prep(words: Sequence[str]) -> int:
    sys.argv = ["data_prep", *words]
    return data_prep.entry()


def _load_checkpoint(words: Sequence[str]) -> None:
    """What a resumed run reads of a checkpoint before it has an engine."""
    tag = Path(words[0])
    try:
        verified = files.verify_share(tag, 0, 1)
        with files.CheckpointReader(tag, verified.manifest) as reader:
            for name, tensor in verified.manifest.tensors.items():
                for _, start, length in tensor.pieces:
                    for kind in ("weight", "exp_avg"):
                        list(reader.read(name, kind, start, length))
    except DamagedCheckpoint as error:
        raise UserError(str(error)) from None
    retention.name_in_latest(tag.parent)


def _read_hosts(words: Sequence[str]) -> None:
    read_hostfile(Path(words[1]))


def _prepare_pretraining(words: Sequence[str]) -> None:
    """What `pipeline.pretrain` does on each rank before training."""
    pretraining.prepare(pretrain_flags.parse(words), 1)


def _prepare_finetuning(words: Sequence[str]) -> None:
    """What `pipeline.finetune` does on each rank before training."""
    finetuning.prepare(finetune_flags.parse(words), 1)


def _reproduce(words: Sequence[str]) -> int | None:
    """`pipeline.reproduce`, whose commands do nothing: they are commands of this list, or take hours."""
    stages = reproduce.stages

    def idle(*arguments: Any) -> list[Stage]:
        return [tuple(replace(command, argv=("true",)) for command in stage) for stage in stages(*arguments)]

    with mock.patch("pipeline.reproduce.stages", idle):
        return reproduce.main(words)


MAINS: dict[str, Run] = {
    "data_prep": _data_prep,
    "pipeline.evaluate": evaluate.main,
    "pipeline.export": export.main,
    "pipeline.finetune": finetune.main,
    "pipeline.plan": plan.main,
    "pipeline.predict": predict.main,
    "pipeline.pretrain": pretrain.main,
    "pipeline.report": report.main,
    "pipeline.reproduce": reproduce.main,
    "pipeline.show": show.main,
}
"""What `python -m` of a module does, in this process."""


@dataclass(frozen=True)
class Command:
    """A command line.

    Attributes:
        name: for messages.
        module: what `python -m` starts.
        words: the arguments; "@" stands for the root of the inputs.
        reads: patterns of the files that it reads, below that root.
        output: where it writes, below that root.
        part: run instead of the module: the part of it that reads files, in which a mistake is one line.
        refuses: whether it refuses valid inputs: those of a run with other settings.
        slow: whether it takes seconds, because it makes an engine or plots.
    """

    name: str
    module: str
    words: str
    reads: tuple[str, ...]
    output: str = OUT
    part: Run | None = None
    refuses: bool = False
    slow: bool = False

    def run(self, words: Sequence[str]) -> int | None:
        """Runs it in this process with these arguments, and returns the exit status."""
        part = self.part
        return MAINS[self.module](words) if part is None else in_one_line(lambda: part(words))

    def inputs(self) -> set[str]:
        """The directories below the root that hold its inputs."""
        named = (word.partition("@/")[2] for word in self.words.split())
        return {Path(name).parts[0] for name in (*named, *self.reads) if name}

    def arguments(self, root: Path) -> list[str]:
        """The arguments with the root in its places."""
        return [word.replace("@", str(root)) for word in self.words.split()]


_DOCUMENTS = ("documents/documents.json", "documents/*.parquet")
_SHARDS = ("shards/manifest.json", "shards/*.arrow", "shards/spiece.model")
_CONFIG = "configs/deepspeed.json"
_TO_SHARDS = "shards --documents @/documents --vocab @/vocabulary/small.model --max-seq-length 64"
_TINY = f"--model albert-tiny --model-args {TINY_MODEL} --data @/shards --eval-data @/held_out"
_TINY += f" --deepspeed_config @/{_CONFIG} --steps 2"
_PLAIN = f"--model albert-tiny --data @/shards --deepspeed_config @/{_CONFIG} --steps 2"
_RTE = "--task rte --data @/tasks/glue/RTE --steps 2 --output @/out"
_TABLE_7 = "7 --scale paper --data @/shards --eval-data @/held_out --additional-data @/shards"
_RUN = (
    *("run/settings.json", "run/spiece.model", "run/checkpoints/*/manifest.json", "run/checkpoints/*/state.json"),
    *("run/checkpoints/*/*.safetensors", "run/checkpoints/latest"),
)
_FINETUNED = ("finetuned/*.json", "finetuned/logits/*", "finetuned/checkpoints/*/*", "run/settings.json")
_METRICS = (*_RUN, "run/metrics.jsonl")
_TUNED = ("tuned/*/results.json", "tuned/*/logits/*", "run/settings.json", "run/metrics.jsonl")

COMMANDS = (
    Command("extract", "data_prep", "extract --source jsonl --input @/records --out @/out", ("records/*",)),
    Command(
        "extract goes on",
        "data_prep",
        "extract --source jsonl --input @/records --out @/unfinished/documents",
        ("unfinished/documents/.units/*", "unfinished/documents/*"),
        "unfinished/documents",
    ),
    Command("vocab", "data_prep", "vocab --documents @/documents --out @/out/v.model --size 300", _DOCUMENTS),
    Command(
        "vocab again",
        "data_prep",
        "vocab --documents @/documents --out @/vocabulary/small.model --size 300",
        ("vocabulary/*",),
        "vocabulary",
    ),
    Command(
        "vocab goes on",
        "data_prep",
        "vocab --documents @/documents --out @/unfinished/vocabulary/v.model --size 300",
        ("unfinished/vocabulary/.v.model.sample/**/*",),
        "unfinished/vocabulary",
    ),
    Command("shards", "data_prep", f"{_TO_SHARDS} --out @/out", (*_DOCUMENTS, "vocabulary/small.model")),
    Command(
        "shards go on",
        "data_prep",
        f"{_TO_SHARDS} --dedup near --out @/unfinished/shards",
        ("unfinished/shards/.units/*", "unfinished/shards/.dedup/**/*", "unfinished/shards/*"),
        "unfinished/shards",
    ),
    Command("verify shards", "data_prep", "verify @/shards", _SHARDS),
    Command("verify documents", "data_prep", "verify @/documents", _DOCUMENTS),
    Command("show rows", "data_prep", "show @/shards", _SHARDS),
    Command("stats", "data_prep", "stats @/shards --out @/out", _SHARDS, slow=True),
    Command("show", "pipeline.show", "@/shards -n 5", _SHARDS),
    Command("export", "pipeline.export", "--run @/run --out @/out --license mit --language en", _METRICS),
    Command("export all", "pipeline.export", "--run @/run --out @/out --all", _METRICS),
    Command("export best", "pipeline.export", "--run @/run --out @/out --best", _METRICS),
    Command("export step", "pipeline.export", "--run @/run --out @/out --step 1", _RUN),
    Command("export a task", "pipeline.export", "--run @/finetuned --out @/out", _FINETUNED),
    Command("checkpoint", "pipeline.export", "@/run/checkpoints/step-00000001", _RUN[2:], part=_load_checkpoint),
    Command(
        "summary",
        "pipeline.evaluate",
        "summary --run @/run",
        ("run/settings.json", "run/metrics.jsonl", "run/rollbacks.json"),
    ),
    Command(
        "report",
        "pipeline.report",
        "--runs @/run @/tuned --out @/out/report.html",
        ("tuned/*/results.json", "run/settings.json", "run/metrics.jsonl"),
    ),
    Command("tables", "pipeline.evaluate", "tables --runs @/tuned --out @/out --tables 2", _TUNED),
    Command("ensemble", "pipeline.evaluate", "ensemble --runs @/tuned --out @/out", _TUNED),
    Command("compare", "pipeline.evaluate", "compare --runs @/tuned --random @/tuned --out @/out", _TUNED),
    Command(
        "plan",
        "pipeline.plan",
        f"--model albert-tiny --deepspeed_config @/{_CONFIG} --gpu h100 --gpus-per-node 1 "
        "--benchmark @/configs/benchmark.json",
        (_CONFIG, "configs/benchmark.json"),
    ),
    Command(
        "hostfile",
        "pipeline.preflight",
        "--hostfile @/configs/hostfile",
        ("configs/hostfile",),
        part=_read_hosts,
    ),
    Command(
        "reproduce",
        "pipeline.reproduce",
        f"{_TABLE_7} --dry-run --data-root @/tasks --out @/out",
        ("shards/manifest.json", "tasks/**/*"),
    ),
    Command(
        "reproduce goes on",
        "pipeline.reproduce",
        f"{_TABLE_7} --data-root @/no-tasks --out @/reproduction",
        ("reproduction/paper/logs/*", "reproduction/paper/*/pretrain/done"),
        "reproduction",
        part=_reproduce,
    ),
    Command(
        "pretrain prepares",
        "pipeline.pretrain",
        f"{_PLAIN} --eval-data @/held_out --output @/out",
        (*_SHARDS, "held_out/manifest.json", "held_out/*.arrow", _CONFIG),
        part=_prepare_pretraining,
    ),
    Command(
        "pretrain with other settings",
        "pipeline.pretrain",
        f"{_PLAIN} --output @/run",
        ("run/settings.json", "run/metrics.jsonl"),
        "run",
        part=_prepare_pretraining,
        refuses=True,
    ),
    Command(
        "pretrain", "pipeline.pretrain", f"{_TINY} --eval-interval 2 --output @/out", (*_SHARDS, _CONFIG), slow=True
    ),
    Command(
        "pretrain goes on",
        "pipeline.pretrain",
        f"{_TINY} --log-interval 1 --output @/trained",
        ("trained/*", "trained/.lock", "trained/checkpoints/**/*", "trained/checkpoints/*/*", "trained/settings.json"),
        "trained",
        slow=True,
    ),
    Command(
        "finetune prepares",
        "pipeline.finetune",
        f"{_RTE} --init @/export",
        ("tasks/glue/RTE/*", "export/config.json", "export/model.safetensors", "export/spiece.model"),
        part=_prepare_finetuning,
    ),
    Command("finetune from a run", "pipeline.finetune", f"{_RTE} --init @/run", _RUN, part=_prepare_finetuning),
    Command(
        "finetune",
        "pipeline.finetune",
        f"{_RTE} --init @/export --batch-size 4",
        ("tasks/glue/RTE/*", "export/*"),
        slow=True,
    ),
    *(
        Command(
            f"finetune on own {task}",
            "pipeline.finetune",
            f"--task {task} --init @/export --data @/users/{DIRECTORIES[task]} --steps 2 --output @/out {columns}",
            (f"users/{DIRECTORIES[task]}/*",),
            part=_prepare_finetuning,
        )
        for task, columns in (
            ("classification", ""),
            ("tagging", ""),
            ("multiple-choice", "--text-column story --choice-columns a b c d --label-column answer"),
        )
    ),
    *(
        Command(
            f"predict {name}",
            "pipeline.predict",
            f"--run @/reviews --input @/users/new.{name} --out @/out.jsonl",
            reads,
            "out.jsonl",
        )
        for name, reads in (
            ("csv", (*(name.replace("run/", "reviews/") for name in _RUN), "users/new.csv")),
            ("jsonl", ("users/new.jsonl",)),
            ("parquet", ("users/new.parquet",)),
        )
    ),
    Command("predict masks", "pipeline.predict", "--run @/run --mask [MASK].", _RUN),
)
