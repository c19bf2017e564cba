"""Bits that flip in runs of three ranks: found by the comparison of the ranks, or by replaying a step."""

import dataclasses
import json
import re
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from pipeline.checkpoint.retention import find_latest, tags
from pipeline.distributed.exits import EXIT_LOST, EXIT_STOPPED
from pipeline.pretraining.replay import prepare, print_comparison
from pipeline.replay import parser
from pipeline.training.callbacks.weight_checksums import CHECKSUMS, LAYOUT, layout_of
from tests.pipeline.conftest import run as run_process
from tests.pipeline.workers import processes
from tests.pipeline.workers.flipped_bits import TENSOR, Flip, run_flipped
from tests.pipeline.workers.runs import Ended

pytestmark = pytest.mark.slow

RANKS, STEPS = 3, 6
MODEL = ("num_hidden_layers=1", "hidden_size=16", "num_attention_heads=2", "intermediate_size=32", "embedding_size=8")


@dataclass(frozen=True)
class Case:
    """A run with a record after every second step, checkpoints after the fourth and the last, and a bit that flips.

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
    Case("fp32 weights at stage 0", 0, Flip("fp32 weights", 1), "bf16"),
    Case("moments at stage 0", 0, Flip("moments", 1)),
    Case("fp32 weights at stage 1", 1, Flip("fp32 weights", 2)),
    Case("weights at stage 2", 2, Flip("weights", 2), "bf16"),
    Case("weights at stage 3", 3, Flip("weights", 2), "bf16"),
]
AT_A_SAVE = Case("at a save", 0, Flip("weights", 5), flags=("--check-interval", "0"))
CLEAN = Case("clean", 2, precision="bf16", replayed=5)
MOMENTS = Case("moments at stage 1", 1, Flip("moments", 5), replayed=6)
BATCH = Case("a batch", 1, Flip("batch", 5), flags=("--log-interval", "1"), replayed=6)
CASES = [*NAMED, AT_A_SAVE, CLEAN, MOMENTS, BATCH]

Ends = dict[str, tuple[Ended, Ended | None]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flipped")


@pytest.fixture(scope="module")
def ended(corpus: Any, folder: Path) -> Ends:
    work = [(case.words(corpus, folder), case.flip, case.replay(folder)) for case in CASES]
    ends = processes.run(RANKS, run_flipped, work, CLEAN.replay(folder), scratch=folder)
    return dict(zip([*(case.name for case in CASES), "interrupted"], ends, strict=True))


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
    assert line.startswith(f"error: rank 1 on host {socket.gethostname()} holds wrong weights after step 2, in ")
    assert TENSOR in line
    assert "rank 0" not in line
    assert "rank 2" not in line
    assert not tags(folder / case.name / "checkpoints")
    assert not records(folder / case.name)


def test_without_checks_in_between_it_is_found_at_the_save_and_older_checkpoints_stay(
    ended: Ends, folder: Path
) -> None:
    end, _ = ended[AT_A_SAVE.name]
    assert end.status == EXIT_LOST
    assert "rank 1 on host" in end.stderr
    assert "after step 6" in end.stderr
    checkpoints = folder / AT_A_SAVE.name / "checkpoints"
    assert [tag.name for tag in tags(checkpoints)] == ["step-00000004"]
    assert find_latest(checkpoints, content=True) is not None
    assert not set(CHECKSUMS) & set(records(folder / AT_A_SAVE.name)[-1])


def test_a_replay_on_the_same_ranks_is_the_same_bit_for_bit(ended: Ends, folder: Path) -> None:
    status, verdicts, last = replay_of(ended, CLEAN)
    assert status == 0
    assert verdicts == dict.fromkeys(("loss", "gradient norm", "batches", "weights", "moments"), "equal")
    assert last == "step 6 is as recorded"  # step 5 has no record
    replayed = ended[CLEAN.name][1]
    assert replayed is not None
    assert "making steps 5 to 6 " in replayed.stdout
    assert "from step-00000004" in replayed.stdout


def test_ctrl_c_at_one_rank_ends_a_replay_with_one_line(ended: Ends) -> None:
    end, _ = ended["interrupted"]
    assert (end.status, end.stderr) == (EXIT_STOPPED, "")
    assert end.stdout.splitlines()[-1] == "stopped by SIGINT after step 5: nothing is compared"


def test_a_flipped_bit_in_moments_is_found_by_a_replay(ended: Ends) -> None:
    status, verdicts, last = replay_of(ended, MOMENTS)
    assert status == 1
    assert verdicts["batches"] == "equal"
    assert verdicts["weights"] == verdicts["moments"] == "differs"
    assert last.startswith("one of the steps 5 to 6 was not computed as here, from the same batches")


def test_a_flipped_bit_in_a_batch_is_found_by_a_replay_as_the_batch(ended: Ends) -> None:
    status, verdicts, last = replay_of(ended, BATCH)
    assert status == 1
    assert verdicts["batches"] == verdicts["weights"] == "differs"
    assert last.startswith("the batch of step 5 was another one on the device"), "the first record that differs"


def test_a_replay_in_one_process_compares_batches_exactly_and_the_rest_up_to_rounding(
    ended: Ends, folder: Path, tmp_path: Path
) -> None:
    """Of a run of three ranks. The replay writes nothing into its directory."""
    assert ended[CLEAN.name][0].status == 0
    run = shutil.copytree(folder / CLEAN.name, tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    result = run_process(sys.executable, "-m", "pipeline.replay", "--run", run, "--step", "3")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    verdicts, last = said(result.stdout)
    assert "\nstep 2/4  loss " in result.stdout, "the progress is that of the replay, not of the run"
    assert verdicts["batches"] == "equal"
    assert verdicts["loss"] in ("equal", "equal up to rounding")
    assert verdicts["weights"] == verdicts["moments"] == "not comparable"
    assert last == "step 4 is as recorded"
    assert "the run computed this step on 3 x 2 x 2 rows, ZeRO stage 2, bf16, " in result.stdout


@pytest.mark.parametrize(
    ("step", "key", "value", "message"),
    [
        (7, "precision", "bf16", "has no record of step 7 or a later one: its last is of step 6"),
        (6, "max_hours", 1.0, "settings"),
        (6, "command", [], "did not record its command"),
        (6, "command", ["--nothing"], "unknown argument --nothing"),
        (6, "command", 3, "has command = 3, which should be a valid array"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(
    ended: Ends, folder: Path, tmp_path: Path, step: int, key: str, value: Any, message: str
) -> None:
    assert ended[CLEAN.name][0].status == 0
    run = tmp_path / "run"
    shutil.copytree(folder / CLEAN.name, run)
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(settings | {key: value}))
    with pytest.raises(UserError, match=message):
        prepare(parser().parse_all(["--run", str(run), "--step", str(step)]), 1)


def replay_prepared(run: Path, step: str) -> Any:
    """The `Replay` that `pipeline.replay` would make: the argument of its work."""
    work: Any = prepare(parser().parse_all(["--run", str(run), "--step", step]), 1).work
    return work.args[0]


def test_a_run_that_was_moved_is_replayed_from_its_beginning_without_checkpoints(
    ended: Ends, folder: Path, tmp_path: Path
) -> None:
    assert ended[CLEAN.name][0].status == 0
    run = tmp_path / "moved"
    shutil.copytree(folder / CLEAN.name, run)
    settings = json.loads((run / "settings.json").read_text())
    settings["command"] += ["--eval-data", str(tmp_path / "held-out rows that are gone")]
    (run / "settings.json").write_text(json.dumps(settings))
    found = replay_prepared(run, "3")
    assert (found.tag, sorted(found.records)) == (None, [2, 4])
    found = replay_prepared(run, "5")
    assert found.tag == run / "checkpoints" / "step-00000004"
    assert sorted(found.records) == [6]


def test_what_other_ranks_or_kernels_computed_on_the_way_is_not_compared_bit_for_bit(
    ended: Ends, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended[CLEAN.name][0].status == 0
    found = replay_prepared(folder / CLEAN.name, "3")
    here, execution = layout_of(found.settings), dataclasses.replace(found.settings.execution, compile=True)
    others = layout_of(dataclasses.replace(found.settings, execution=execution)), "3 ranks"
    for other, layouts, status in ((None, (here, here), 1), *((one, (one, here), 0) for one in others)):
        records: dict[int, dict[str, Any]] = {
            step: {"loss": 2.0, "grad_norm": 1.0, **dict.fromkeys(CHECKSUMS, "a"), LAYOUT: layout}
            for step, layout in zip((2, 4), layouts)
        }
        again = {2: records[2], 4: records[4] | {"weights_checksum": "b"}}
        assert print_comparison(dataclasses.replace(found, records=records), again) == status
        verdicts, _ = said(output := capsys.readouterr().out)
        assert verdicts["weights"] == ("differs" if other is None else "not comparable")
        assert (f"the run computed a step before it on {other}, " in output) == (other is not None)
