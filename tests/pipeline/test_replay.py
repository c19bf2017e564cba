"""Bits that flip in runs of three ranks: found by the comparison of the ranks, or by replaying a step."""

import json
import re
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.checkpoint.retention import find_latest, tags
from pipeline.distributed.exits import EXIT_LOST
from pipeline.training.silent_errors import CHECKSUMS
from tests.pipeline.conftest import run as run_process
from tests.pipeline.workers import processes
from tests.pipeline.workers.flipped_bits import TENSOR, Flip, run_flipped
from tests.pipeline.workers.runs import Ended

pytestmark = pytest.mark.slow

RANKS, STEPS = 3, 8
MODEL = ("num_hidden_layers=1", "hidden_size=16", "num_attention_heads=2", "intermediate_size=32", "embedding_size=8")


@dataclass(frozen=True)
class Case:
    """A run with records after every second step, checkpoints after every fourth, and a bit that flips.

    Attributes:
        replayed: the step that is replayed after the run; None for none.
    """

    name: str
    stage: int
    flip: Flip | None = None
    precision: str = "fp32"
    flags: tuple[str, ...] = ()
    replayed: int | None = None

    def words(self, corpus: Any, folder: Path) -> list[str]:
        config = {
            "train_batch_size": 9,
            "train_micro_batch_size_per_gpu": 2,
            "optimizer": {"type": "Lamb", "params": {"lr": 0.02}},
            "zero_optimization": {"stage": self.stage, "reduce_bucket_size": 5000},
        }
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(config))
        flags = {
            "--model": "albert-tiny", "--data": corpus.train, "--deepspeed_config": path,
            "--output": folder / self.name, "--precision": self.precision, "--steps": STEPS,
            "--log-interval": 2, "--save-interval": 4,
        }  # fmt: skip
        return [*(str(word) for flag in flags.items() for word in flag), "--model-args", *MODEL, *self.flags]

    def replay(self, folder: Path) -> list[str] | None:
        return None if self.replayed is None else ["--run", str(folder / self.name), "--step", str(self.replayed)]


# At stage 0 a copy stays wrong until the next check; from stage 1 on each update writes it again.
NAMED = [
    Case("weights at stage 0", 0, Flip("weights", 5)),
    Case("weights at stage 0 in bf16", 0, Flip("weights", 6), "bf16"),
    Case("fp32 weights at stage 0", 0, Flip("fp32 weights", 5), "bf16"),
    Case("moments at stage 0", 0, Flip("moments", 5)),
    Case("weights at stage 2", 2, Flip("weights", 6), "bf16"),
    Case("fp32 weights at stage 1", 1, Flip("fp32 weights", 6)),
    Case("weights at stage 3", 3, Flip("weights", 6), "bf16"),
]
AT_A_SAVE = Case("at a save", 0, Flip("weights", 7), flags=("--check-interval", "0"))
CLEAN = Case("clean", 2, precision="bf16", replayed=7)
MOMENTS = Case("moments at stage 1", 1, Flip("moments", 5), replayed=8)
BATCH = Case("a batch", 1, Flip("batch", 5), replayed=8)
CASES = [*NAMED, AT_A_SAVE, CLEAN, MOMENTS, BATCH]

Ends = dict[str, tuple[Ended, Ended | None]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flipped")


@pytest.fixture(scope="module")
def ended(corpus: Any, folder: Path) -> Ends:
    work = [(case.words(corpus, folder), case.flip, case.replay(folder)) for case in CASES]
    ends = processes.run(RANKS, run_flipped, work, scratch=folder)
    return dict(zip((case.name for case in CASES), ends, strict=True))


def replay_of(ends: Ends, case: Case) -> tuple[int, dict[str, str], str]:
    """The exit status of a replay, the verdict of each line of its table, and its last line."""
    trained, replayed = ends[case.name]
    assert trained.status == 0, trained.stderr
    assert replayed is not None
    return (replayed.status, *said(replayed.stdout))


def said(output: str) -> tuple[dict[str, str], str]:
    lines = [re.split(r"  +", line) for line in output.splitlines()]
    return {line[0]: line[3] for line in lines if len(line) == 4}, output.splitlines()[-1]


def records(run: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["split"] == "train"]


@pytest.mark.parametrize("case", NAMED, ids=lambda case: case.name)
def test_the_rank_with_a_flipped_bit_is_named_at_the_next_check_and_nothing_of_it_is_saved(
    ended: Ends, folder: Path, case: Case
) -> None:
    end, _ = ended[case.name]
    assert end.status == EXIT_LOST, end.stderr
    (line,) = end.stderr.splitlines()
    assert line.startswith(f"error: rank 1 on host {socket.gethostname()} holds wrong weights after step 6, in ")
    assert TENSOR in line
    assert "rank 0" not in line
    assert "rank 2" not in line
    assert [tag.name for tag in tags(folder / case.name / "checkpoints")] == ["step-00000004"]
    assert find_latest(folder / case.name / "checkpoints", content=True) is not None
    assert [record["step"] for record in records(folder / case.name)] == [2, 4]


def test_without_checks_in_between_a_flipped_bit_is_found_at_the_save(ended: Ends, folder: Path) -> None:
    end, _ = ended[AT_A_SAVE.name]
    assert end.status == EXIT_LOST
    assert "rank 1 on host" in end.stderr
    assert "after step 8" in end.stderr
    assert [tag.name for tag in tags(folder / AT_A_SAVE.name / "checkpoints")] == ["step-00000004"]
    assert not set(CHECKSUMS) & set(records(folder / AT_A_SAVE.name)[-1])


def test_a_replay_on_the_same_ranks_is_the_same_bit_for_bit(ended: Ends, folder: Path) -> None:
    status, verdicts, last = replay_of(ended, CLEAN)
    assert status == 0
    assert verdicts == dict.fromkeys(("loss", "gradient norm", "batches", "weights", "moments"), "equal")
    assert last == "step 8 is as recorded"  # step 7 has no record
    replayed = ended[CLEAN.name][1]
    assert replayed is not None
    assert "making steps 5 to 8 " in replayed.stdout
    assert "from step-00000004" in replayed.stdout
    assert "comparing the weights by checksum takes " in ended[CLEAN.name][0].stdout


def test_a_flipped_bit_in_moments_is_found_by_a_replay(ended: Ends) -> None:
    """It is in step 5, and the record of step 6 is the first that shows it."""
    status, verdicts, last = replay_of(ended, MOMENTS)
    assert status == 1
    assert verdicts["batches"] == "equal"
    assert verdicts["weights"] == verdicts["moments"] == "differs"
    assert last.startswith("one of the steps 5 to 6 was not computed as here, from the same batches")


def test_a_flipped_bit_in_a_batch_is_found_by_a_replay_as_the_batch(ended: Ends) -> None:
    status, verdicts, last = replay_of(ended, BATCH)
    assert status == 1
    assert verdicts["batches"] == verdicts["weights"] == "differs"
    assert last.startswith("the batch of one of the steps 5 to 6 was another one on the device")


def test_a_replay_in_one_process_compares_batches_exactly_and_the_rest_up_to_rounding(
    ended: Ends, folder: Path
) -> None:
    """Of a run of three ranks, into whose directory it writes nothing."""
    assert ended[CLEAN.name][0].status == 0
    run = folder / CLEAN.name
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    result = run_process(sys.executable, "-m", "pipeline.replay", "--run", run, "--step", "6")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    verdicts, last = said(result.stdout)
    assert verdicts["batches"] == "equal"
    assert verdicts["loss"] in ("equal", "equal up to rounding")
    assert verdicts["weights"] == verdicts["moments"] == "not comparable"
    assert last == "step 6 is as recorded"
    assert "the run computed this step on 3 x 2 x 2 rows, ZeRO stage 2, bf16, " in result.stdout
