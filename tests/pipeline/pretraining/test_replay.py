"""Steps that are made again: of runs of two ranks, in one of which a bit flips."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from pipeline.pretraining.replay import compare, prepare
from pipeline.replay import parser
from tests.pipeline.conftest import run as run_process
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.flipped_bits import Flip, run_and_replay

FLAGS = ("--steps", "6", "--log-interval", "2", "--save-interval", "4", "--eval-interval", "100")
CLEAN, FLIPPED = (Run(name, 2, 3, stage=1, flags=FLAGS) for name in ("clean", "flipped"))


def record(**values: Any) -> dict[str, Any]:
    return {
        "loss": 2.0,
        "batch_checksum": "b",
        "weights_checksum": "w",
        "moments_checksum": "m",
        "layout": "L",
    } | values


@pytest.mark.parametrize(
    ("recorded", "again", "status", "said"),
    [
        ([record(), record()], [record(), record()], 0, ["step 4 is as recorded: loss, batch_", "moments_checksum"]),
        ([record()], [record(loss=2.1)], 1, ["loss was 2.0, and is 2.1 now", "what followed the checkpoint"]),
        (
            [record(), record()],
            [record(), record(moments_checksum="n")],
            1,
            ["step 4: mom", "what followed step 2"],
        ),
        ([record(), record(loss=1.0)], [record(batch_checksum="c"), record()], 1, ["step 2: batch_", "a batch after"]),
        ([record(layout="K"), record()], [record(loss=2.1)] * 2, 0, ["the run computed on K", "recorded: batch_"]),
        ([record(layout="K")], [record(batch_checksum="c")], 1, ["the run computed on K", "a batch after"]),
        ([{"loss": 2.0}], [record()], 0, ["step 2 is as recorded: loss"]),
    ],
)
def test_records_are_compared_up_to_the_first_that_differs(
    recorded: list[Any], again: list[Any], status: int, said: list[str]
) -> None:
    steps = range(2, 2 * len(recorded) + 1, 2)
    lines, found = compare(dict(zip(steps, recorded)), dict(zip(steps, again)), "L")
    assert found == status
    assert all(words in "\n".join(lines) for words in said)


@pytest.fixture(scope="module")
def folder(corpus: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds both runs, and what their replays printed."""
    folder = tmp_path_factory.mktemp("replayed")
    runs = [(run.command(corpus, folder), ["--run", str(folder / run.name), "--step", "5"]) for run in (CLEAN, FLIPPED)]
    ends = processes.run(2, run_and_replay, list(zip(runs, [None, Flip("moments", 5)])), scratch=folder)
    for run, (trained, replayed) in zip((CLEAN, FLIPPED), ends, strict=True):
        assert trained.status == 0, trained.stderr
        (folder / f"{run.name}.txt").write_text(f"{replayed.status}\n{replayed.stdout}{replayed.stderr}")
    return folder


@pytest.mark.slow
def test_a_replay_on_the_same_ranks_is_the_same_bit_for_bit(folder: Path) -> None:
    status, first, *_, last = (folder / "clean.txt").read_text().splitlines()
    assert (status, first) == ("0", f"making steps 5 to 6 of {folder / 'clean'} again")
    assert last == "step 6 is as recorded: loss, grad_norm, batch_checksum, weights_checksum, moments_checksum"


@pytest.mark.slow
def test_a_flipped_bit_in_moments_is_found(folder: Path) -> None:
    status, *lines = (folder / "flipped.txt").read_text().splitlines()
    assert status == "1"
    assert any(line.startswith("step 6: moments_checksum was ") for line in lines)
    assert lines[-1].startswith("what followed the checkpoint was not computed as here, from the same batches")


@pytest.mark.slow
def test_one_process_compares_the_batches_of_two_and_writes_nothing(folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(folder / "clean", tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    result = run_process(sys.executable, "-m", "pipeline.replay", "--run", run, "--step", "3")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert "making steps 1 to 4 of " in result.stdout, "without a checkpoint: from the beginning"
    assert "only batches are compared: the run computed on 2 x 2 x 3 rows" in result.stdout
    assert result.stdout.endswith("step 4 is as recorded: batch_checksum\n")


@pytest.mark.slow
def test_what_cannot_be_replayed_is_one_line(folder: Path) -> None:
    with pytest.raises(UserError, match="has no record of step 7 or a later one"):
        prepare(parser().parse_all(["--run", str(folder / "clean"), "--step", "7"]), 1)
    with pytest.raises(UserError, match="holds no run"):
        prepare(parser().parse_all(["--run", str(folder), "--step", "7"]), 1)
