"""Checks and stages shards on two ranks of one host, and trains on the copy."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch.distributed as dist

from common.errors import UserError
from data_prep.format.shard_manifest import read_manifest
from data_prep.format.shards import map_shard
from pipeline.distributed.control import ControlGroup
from pipeline.pretraining import host_data, pretraining_recipe
from pipeline.pretraining.host_data import check_on_host
from tests.pipeline.workers.runs import run_each


def flip_a_bit(path: Path) -> None:
    """Changes one bit in the middle of a file, not its size."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def prepare_in_many_ways(shards: Path, damaged: Path, folder: Path) -> dict[str, Any]:
    """The files that each rank has checked and copied, or the mistakes that it was told, in each situation."""
    control, is_first = ControlGroup(), dist.get_rank() == 0

    def together(directory: Path, stage: Path | None, mine: bool = is_first) -> list[Any]:
        checked, copied = [], []
        check, copy = host_data.problem_of, host_data._copy

        def noted_check(place: Path, file: Any, manifest: Any) -> str:
            checked.append(file.name)
            return check(place, file, manifest)

        def noted_copy(source: Path, target: Path) -> None:
            copied.append(source.name)
            copy(source, target)

        with mock.patch.object(host_data, "problem_of", noted_check), mock.patch.object(host_data, "_copy", noted_copy):
            try:
                told: Any = check_on_host([directory], stage, control, mine, verify=True)[0].place
            except UserError as error:
                told = str(error)
        everyone: list[Any] = [None] * 2
        dist.all_gather_object(everyone, (told, sorted(set(checked)), sorted(copied)))
        return everyone

    def on_rank_0(work: Any, *arguments: Any) -> None:
        if dist.get_rank() == 0:
            work(*arguments)
        dist.barrier()

    stage, foreign = folder / "stage", folder / "foreign"
    found = {"in place": together(shards, None), "on two hosts": together(shards, None, True)}
    mine = [check_on_host([shards], None, control, first, verify=True)[0].checksums for first in (is_first, True)]
    sums: list[Any] = [None] * 2
    dist.all_gather_object(sums, [{name: of_file.tolist() for name, of_file in found.items()} for found in mine])
    found["checksums"] = [*sums[0], *sums[1]]
    found["damaged"] = together(damaged, folder / "other")
    on_rank_0(foreign.mkdir)
    on_rank_0((foreign / "thesis.txt").write_text, "years of work")
    found["foreign"] = together(shards, foreign)
    found["new"] = together(shards, stage)
    found["again"] = together(shards, stage)
    copy = found["new"][0][0]
    on_rank_0(flip_a_bit, copy / "shard-00000.arrow")
    found["copy damaged"] = together(shards, stage)
    return found


def train_on_changed(commands: list[list[str]], shard: Path) -> list[Any]:
    """How runs end if the tokens of `shard` change after the check at the start."""
    check = host_data.check_on_host

    def check_and_change(*arguments: Any) -> Any:
        checked = check(*arguments)
        tokens = map_shard(shard, read_manifest(shard.parent).shards()[0].rows).tokens.tobytes()
        content = shard.read_bytes()
        changed = (np.frombuffer(tokens, np.uint16) ^ 1).tobytes()  # tokens that the vocabulary has as well
        shard.write_bytes(content.replace(tokens, changed))
        return checked

    with mock.patch.object(pretraining_recipe, "check_on_host", check_and_change):
        return train(commands)


def train(commands: list[list[str]]) -> list[Any]:
    """How the runs of pipeline.pretrain ended."""
    return run_each([(command, None) for command in commands])
