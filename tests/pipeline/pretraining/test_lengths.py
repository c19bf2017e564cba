"""The length of a run may change, and batches may be left out: what is recorded, and that a resume is exact."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from pipeline.pretraining.lengths import EarlierStart, length_of, paper_steps, skipped_batches_of
from tests.docs.pages import REPOSITORY, blocks_of
from tests.pipeline.outcome import differences, outcome
from tests.pipeline.pretraining import trained_models
from tests.pipeline.records import pretrain_settings
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import Ended, run_each, run_one


def lengthen(command: list[str], init: Path, output: Path, undisturbed: Path) -> dict[str, Ended]:
    """Trains 4 steps, then to 10 steps: stopped after step 6 and resumed in `output`, without a stop in `undisturbed`.

    After the first start the directory of the initial model is gone. command: without --steps, --init and --output.
    """

    def words(steps: int, place: Path = output) -> list[str]:
        return [*command, "--init", str(init), "--output", str(place), "--steps", str(steps)]

    ended = {"first": run_one(words(4))}
    shutil.move(init, init.with_name("gone"))
    ended["again"] = run_one(words(4))
    shutil.copytree(output, undisturbed)
    (ended["stopped"],) = run_each([(words(10), 6)])
    ended["resumed"] = run_one(words(10))
    ended["undisturbed"] = run_one(words(10, undisturbed))
    return ended


PEAK = 0.02
CONFIG = {
    "train_batch_size": 4,
    "optimizer": {"type": "Lamb", "params": {"lr": PEAK}},
    "zero_optimization": {"stage": 1},
}


def earlier(steps_made: int, steps: int, **more: Any) -> EarlierStart:
    return EarlierStart(Path("run"), pretrain_settings(steps=steps, **more), steps_made)


@pytest.mark.parametrize(
    ("begun", "given", "expected"),
    [
        (None, 40, 40),
        (None, None, paper_steps(8)),
        (earlier(40, 40), 80, 80),
        (earlier(20, 40), 30, 30),  # shorter, but not shorter than what is done
        (earlier(20, 40), 20, "a run of 40 steps and has made 20 steps, so it cannot have 20; give --steps 40"),
        (earlier(40, 40), 30, "and has made 40 steps, so it cannot have 30"),
        (earlier(40, 40), None, "without --steps it would have 64,000,000; give --steps 40 to resume it"),
        (earlier(40, 40, max_hours=1.0), 80, "has --max-hours, so it cannot have 80; give --steps 40"),
    ],
)
def test_the_length_of_a_run(begun, given, expected):
    if isinstance(expected, int):
        assert length_of(begun, given, 8, None) == expected
    else:
        with pytest.raises(UserError, match=expected):
            length_of(begun, given, 8, None)


@pytest.mark.parametrize(
    ("recorded", "made", "words", "expected"),
    [
        ([[4, 6]], 8, [], [(4, 6)]),
        ([[4, 6]], 8, ["5-6", "11-11"], [(4, 6), (10, 11)]),  # 8 steps are 10 batches
        ([[4, 6]], 8, ["10-12"], "has been trained on batches up to 10; go back"),
        ([[20, 30]], 8, ["30-31"], "some of these batches are skipped already"),
        ([], 0, ["0-3"], "give the first and the last batch"),
        ([], 0, ["41-41"], "the run ends with batch 40, so it never reads 41"),
        ([], 0, ["40-50"], [(39, 50)]),
        ([], 0, ["2-3", "42-42"], [(1, 3), (41, 42)]),  # two that are left out move the end
        ([], 0, ["2-3", "43-43"], "the run ends with batch 42, so it never reads 43"),
        ([[60, 62]], 8, [], [(60, 62)]),  # of a run that was longer
    ],
)
def test_batches_are_left_out_that_no_checkpoint_has_seen(recorded, made, words, expected):
    begun = earlier(made, 40, skipped_batches=tuple(map(tuple, recorded)))
    if isinstance(expected, list):
        assert list(skipped_batches_of(begun, words, 40)) == expected
    else:
        with pytest.raises(UserError, match=expected):
            skipped_batches_of(begun, words, 40)


def test_another_batch_is_named_by_its_own_message():
    assert length_of(earlier(40, 40), None, 16, None) == 40


@pytest.mark.slow
def test_a_longer_run_goes_on_and_a_stop_changes_nothing(corpus, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    init = trained_models.publish(trained_models.albert(corpus.vocabulary), tmp_path / "albert", corpus.vocabulary)
    command = [
        "--data", str(corpus.train), "--eval-data", str(corpus.held_out), "--eval-batches", "2",
        "--deepspeed_config", str(tmp_path / "config.json"), "--log-interval", "1", "--save-interval", "2",
        "--eval-interval", "100", "--precision", "fp32", "--keep-checkpoints", "20",
    ]  # fmt: skip
    output, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    ended = processes.run(1, lengthen, command, init, output, undisturbed, scratch=tmp_path)
    assert {name: end.status for name, end in ended.items()} == {
        "first": 0, "again": 0, "stopped": 75, "resumed": 0, "undisturbed": 0,
    }, {name: end.stderr for name, end in ended.items()}  # fmt: skip
    assert "nothing to do" in ended["again"].stdout
    assert (output / "done").read_text() == "10\n"
    assert differences(output, undisturbed) == []
    training = [record for record in outcome(output)[0] if record["split"] == "train"]
    assert [record["step"] for record in training] == list(range(1, 11))
    rates = [PEAK * (1 - step / 4) for step in range(4)] + [PEAK * (1 - step / 10) for step in range(4, 10)]
    assert [record["learning_rate"] for record in training] == pytest.approx(rates)
    evaluations = [record["step"] for record in outcome(output)[0] if record["split"] == "eval"]
    assert evaluations == [0, 4, 10]  # what it starts from, the first end and the second
    settings = json.loads((output / "settings.json").read_text())
    assert settings["steps"] == 10


FLAGS = ("--log-interval", "1")
BACK, UNDISTURBED = Run("back", 1, 12, flags=FLAGS), Run("undisturbed", 1, 12, flags=(*FLAGS, "--skip-batches", "5-6"))
LAST = "step-00000006"


def recipe(run: Path) -> list[str]:
    """The commands of the page, for the directory of this run."""
    blocks = list(blocks_of(REPOSITORY / "docs" / "troubleshooting.md"))
    heading = next(n for n, block in enumerate(blocks) if "## Going back to an older checkpoint" in block.lines)
    commands = "\n".join(next(block for block in blocks[heading:] if block.kind == "code").lines)
    commands = commands.replace("\\\n", " ")
    for shown, here in (("runs/base", str(run)), ("step-00125000", LAST), ("124300-124320", "5-6")):
        assert shown in commands
        commands = commands.replace(shown, here)
    return commands.splitlines()


def go_back(command: list[str], run: Path, undisturbed: list[str]) -> list[Ended]:
    """Stops a run after step 6, follows the recipe, stops again after step 8, and resumes it without the flag."""
    (first,) = run_each([(command, 6)])
    *moves, again = recipe(run)
    subprocess.run("\n".join(["set -e", *moves]), shell=True, check=True)
    flag = again.index("--skip-batches")  # before it, the page has the command of its example
    return [first, *run_each([([*command, *shlex.split(again[flag:])], 8), (command, None), (undisturbed, None)])]


@pytest.mark.slow
def test_the_recipe_ends_as_a_run_that_has_left_the_batches_out_from_the_beginning(corpus, tmp_path):
    run, undisturbed = tmp_path / BACK.name, tmp_path / UNDISTURBED.name
    commands = BACK.command(corpus, tmp_path), run, UNDISTURBED.command(corpus, tmp_path)
    ends = processes.run(1, go_back, *commands, scratch=tmp_path)
    assert [end.status for end in ends] == [75, 75, 0, 0], ends
    assert "resuming from step 4" in ends[1].stdout
    assert "resuming from step 8" in ends[2].stdout
    assert all("batches 5 to 6 are left out" in end.stdout for end in ends[1:])
    assert differences(run, undisturbed) == []
    passed_over = [record.get("batches_passed_over", 0) for record in outcome(run)[0] if record["split"] == "train"]
    assert passed_over == [0] * 4 + [2] * 6
    assert (tmp_path / f"{BACK.name}-aside" / LAST / "state.json").exists()
