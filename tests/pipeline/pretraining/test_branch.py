"""A run goes on: from a checkpoint with another schedule, longer, or without some batches; a resume is exact."""

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from common.errors import UserError
from data_prep.text.sentencepiece_vocabulary import train_sentencepiece
from pipeline.checkpoint.retention import step_of, tags
from pipeline.pretraining.lengths import EarlierStart, length_of, paper_steps, skipped_batches_of
from pipeline.pretraining.pretraining_task import PreTraining
from pipeline.run import start
from tests.data_prep.corpora import make_sentences
from tests.docs.pages import REPOSITORY, blocks_of
from tests.pipeline.conftest import data_prep, run
from tests.pipeline.outcome import differences, outcome
from tests.pipeline.pretraining import trained_models
from tests.pipeline.pretraining.command_lines import CONFIG, line, resolve
from tests.pipeline.records import pretrain_settings
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import Ended, run_each, run_one

SMALL = ("num_hidden_layers=1", "hidden_size=32", "num_attention_heads=4", "intermediate_size=64", "embedding_size=16")


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A folder with two runs, at a constant rate and one that falls from step 6 on; and how to start more."""
    folder = tmp_path_factory.mktemp("branch")

    def train(name, decay_steps, *more, steps=9, status=0, save_interval=4, held_out=()):
        config = folder / f"{name}.json"
        falling = {"warmup_num_steps": 2, "decay_num_steps": decay_steps}  # in its last steps
        scheduler = {"type": "WarmupStableDecay", "params": falling}
        config.write_text(json.dumps(CONFIG | {"scheduler": scheduler}))
        words = {
            "--model": "albert-tiny", "--model-args": SMALL, "--data": str(corpus.train), "--steps": str(steps),
            "--eval-data": (str(corpus.held_out), *held_out), "--eval-batches": "1", "--eval-interval": "100",
            "--save-interval": str(save_interval), "--log-interval": "1", "--keep-checkpoints": "1",
            "--deepspeed_config": str(config), "--output": str(folder / name),
        }  # fmt: skip
        return run(sys.executable, "-m", "pipeline.pretrain", *line(words), *more, status=status)

    train("constant", 0, "--keep-at", "2900", "6k")  # of about 480 tokens a step
    train("falling", 3)
    shutil.copytree(folder / "constant", folder / "foreign")
    (folder / "foreign" / "spiece.model").write_bytes(train_sentencepiece(iter(make_sentences(300)), 200).serialized)
    return folder, train


def losses(output):
    return {record["step"]: record["loss"] for record in outcome(output)[0] if record["split"] == "train"}


def test_a_branch_trains_as_a_run_that_had_its_schedule_from_the_start(trained):
    folder, train = trained
    checkpoint = next(t for t in tags(folder / "constant" / "checkpoints") if step_of(t) < 9)
    result = train("branch", 3, "--branch", str(checkpoint), "--keep-at", "480", "1M")
    assert "note: --keep-at: the run does not reach step 1, " in result.stdout
    assert f"going on from step {step_of(checkpoint)} of {folder / 'constant'}" in result.stdout
    whole, branch = losses(folder / "falling"), losses(folder / "branch")
    assert branch == {step: loss for step, loss in whole.items() if step > step_of(checkpoint)}
    assert whole != losses(folder / "constant"), "the schedule makes no difference, so the test shows nothing"
    first = next(record for record in outcome(folder / "branch")[0] if record["split"] == "eval")
    assert first["step"] == step_of(checkpoint), "what the branch starts with is evaluated"
    record = json.loads((folder / "branch" / "settings.json").read_text())
    assert record["branch"] == {"run": str((folder / "constant").resolve()), "step": step_of(checkpoint), "shift": 0}


def test_the_first_line_of_a_branch_has_its_own_steps_only_and_the_loss_may_be_another(trained, corpus):
    folder, train = trained
    train("unlogged", 0, "--log-interval", "100", "--keep-at", "2900")
    tag = next(t for t in tags(folder / "unlogged" / "checkpoints") if step_of(t) < 9)
    train("own_line", 3, "--branch", str(tag))
    teacher = trained_models.export(folder / "teacher", corpus.vocabulary, max_position_embeddings=128)
    train("from_teacher", 3, "--branch", str(tag), "--teacher", str(teacher))
    whole, (branch, *_) = outcome(folder / "constant")[0], outcome(folder / "own_line")[0][1:]
    same = next(record for record in whole if record["step"] == branch["step"] and record["split"] == "train")
    assert {name: branch[name] for name in ("tokens", "predictions", "pairs")} == {
        name: same[name] for name in ("tokens", "predictions", "pairs")
    }


def test_one_held_out_document_gives_no_accuracy_of_nsp(trained, corpus, tmp_path):
    """There is no other document that a second segment could come from, so each label would be 0."""
    folder, train = trained
    (tmp_path / "one.txt").write_text(" ".join(make_sentences(200, seed=5)))
    data_prep("extract", "--source", "text", "--input", tmp_path / "one.txt", "--out", tmp_path / "one")
    words = ("--vocab", corpus.vocabulary, "--max-seq-length", "64", "--out", tmp_path / "shards")
    data_prep("shards", "--documents", tmp_path / "one", *words)
    said = train("one_document", 3, held_out=[str(tmp_path / "shards")]).stdout
    assert "--eval-data shards" not in said
    *_, record = (record for record in outcome(folder / "one_document")[0] if record["split"] == "eval")
    scored = {name for name in record if name.endswith("p_accuracy")}
    assert scored == {"sop_accuracy", "nsp_accuracy", "shards/sop_accuracy"}
    said = train("of_nsp", 3, "--objective", "nsp", held_out=[str(tmp_path / "shards")]).stdout
    assert said.count("no NSP of --eval-data") == said.count("note: no NSP of --eval-data shards: one document") == 1


def stop_before_the_first_step(command: list[str], other: Path) -> list[Ended]:
    """Stops a branch before its first step, removes the run that it has left, and starts it again."""
    print_header = start._print_header

    def warn(*arguments):
        os.kill(os.getpid(), signal.SIGUSR1)
        print_header(*arguments)

    with mock.patch.object(start, "_print_header", warn):
        ended = run_one(command)
    shutil.rmtree(other)
    return [ended, run_one(command)]


def test_a_branch_that_is_stopped_before_its_first_step_needs_the_other_run_no_more(trained, corpus, tmp_path):
    folder, _ = trained
    other, output = tmp_path / "other", tmp_path / "branch"
    shutil.copytree(folder / "constant", other)
    config = str(folder / "constant.json")
    words = {"--branch": str(other), "--data": str(corpus.train), "--steps": "12", "--deepspeed_config": config}
    command = line(words | {"--model": "albert-tiny", "--model-args": SMALL, "--output": str(output)})
    ends = processes.run(1, stop_before_the_first_step, command, other, scratch=tmp_path)
    assert [end.status for end in ends] == [75, 0], ends
    assert "saved at step 9" in ends[0].stdout
    assert "finished after 12 steps" in ends[1].stdout


def test_a_branch_with_another_batch_reads_the_rows_that_follow(trained, words):
    folder, _ = trained
    batch = CONFIG["train_batch_size"]
    (folder / "double.json").write_text(json.dumps(CONFIG | {"train_batch_size": 2 * batch}))
    given = {"--branch": str(folder / "constant"), "--model-args": SMALL, "--steps": "20", "--keep-at": "6k"}
    settings = resolve(words | given | {"--deepspeed_config": str(folder / "double.json")}, 1)
    task = PreTraining(settings, None, None, None)
    task.control = SimpleNamespace(rank=0, world_size=1)
    task.read = lambda positions, size: positions
    (micro_batches,) = task.steps([9])  # about 480 tokens each of the 9 steps before, 960 from here on
    assert np.concatenate(micro_batches).tolist() == list(range(9 * batch, 11 * batch))
    assert (settings.samples_after(9), settings.samples_after(10)) == (9 * batch, 11 * batch)
    assert settings.milestones == (11,)


def test_a_branch_resumes_without_the_run_that_it_left(trained):
    folder, train = trained
    shutil.copytree(folder / "constant", folder / "parent")
    words = ("--branch", str(folder / "parent"))
    assert "--steps" in train("later", 3, *words, status=2).stderr  # the newest is step 9, and so is its end
    train("later", 3, *words, steps=12, save_interval=1)
    for path in (folder / "parent").iterdir():  # its directory stays
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert [step_of(tag) for tag in tags(folder / "later" / "checkpoints")] == [12]
    assert "nothing to do" in train("later", 3, *words, steps=12).stdout
    assert "other settings (branch" in train("later", 3, steps=12, status=2).stderr
    assert sorted(losses(folder / "later")) == [10, 11, 12]


def test_a_branch_resumes_though_its_checkpoint_was_deleted(trained):
    """The other run has gone on, and deletes old checkpoints."""
    folder, train = trained
    shutil.copytree(folder / "constant", folder / "pruned")
    tag = next(t for t in tags(folder / "pruned" / "checkpoints") if step_of(t) < 9)
    train("from_pruned", 3, "--branch", str(tag), save_interval=1)
    shutil.rmtree(tag)
    assert "nothing to do" in train("from_pruned", 3, "--branch", str(tag)).stdout
    gone = train("another", 3, "--branch", str(tag), status=2).stderr
    assert f"has no checkpoint of step {step_of(tag)}; its steps: 9" in gone
    newest = folder / "pruned" / "checkpoints" / "step-00000009"
    (newest / "state.json").write_text("{}")
    assert "is damaged (state.json" in train("another", 3, "--branch", str(newest), steps=20, status=2).stderr
    assert not (folder / "another").exists()


def test_a_branch_leaves_out_what_its_run_has_left_out(trained, words):
    folder, train = trained
    train("skipping", 0, "--skip-batches", "2-3")
    given = {"--branch": str(folder / "skipping"), "--model-args": SMALL, "--steps": "20"}
    assert resolve(words | given, 1).skipped_batches == ((1, 3),)
    with pytest.raises(UserError, match="has been trained on batches up to 11"):
        resolve(words | given | {"--skip-batches": "5-6"}, 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--branch": "{folder}/nothing"}, "nothing is no run and no checkpoint of one"),
        ({"--branch": "{folder}/foreign"}, "--branch .* and --data .* have different vocabularies"),
        ({"--init": "{folder}/constant"}, "--init and --branch"),
        ({"--model-args": "hidden_size=64"}, "--branch .* holds another model: .*hidden_size is 32 there"),
        ({"--objective": "nsp"}, "--branch .*: its sentence_head is sop, and this run would have nsp"),
        ({"--model-args": (*SMALL, "max_position_embeddings=96")}, "its max_position_embeddings is 64"),
        ({"--deepspeed_config": "{folder}/adam.json"}, "trained by Lamb, whose moments mean something else to AdamW"),
    ],
)
def test_what_cannot_be_branched(trained, words, changed, message):
    folder, _ = trained
    adam = {"optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}
    (folder / "adam.json").write_text(json.dumps(CONFIG | adam))
    wanted = {"--branch": "{folder}/constant", "--model-args": SMALL, "--steps": "20"} | changed
    filled = {flag: value.format(folder=folder) if isinstance(value, str) else value for flag, value in wanted.items()}
    with pytest.raises(UserError, match=message):
        resolve(words | filled, 1)


def test_a_checkpoint_is_a_model_to_start_from(trained, words):
    folder, _ = trained
    tag = tags(folder / "constant" / "checkpoints")[-1]
    del words["--model"]
    settings = resolve(words | {"--init": str(tag)}, 1)
    assert settings.model.hidden_size == 32
    assert settings.init == str(tag.resolve())


def test_other_held_out_text_begins_the_comparison_anew(trained, corpus):
    folder, train = trained
    output = folder / "falling"
    settings = json.loads((output / "settings.json").read_text())
    assert settings["scored_on"] == hashlib.sha256((corpus.held_out / "manifest.json").read_bytes()).hexdigest()
    line = "other held-out text than before: the best checkpoint is chosen anew"
    assert line not in train("falling", 3, steps=10).stdout
    (output / "settings.json").write_text(json.dumps(settings | {"scored_on": "of other text", "steps": 10}))
    assert line in train("falling", 3, steps=11).stdout


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


PEAK = CONFIG["optimizer"]["params"]["lr"]


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
    hours = None if begun is None else begun.settings.flags.max_hours
    if isinstance(expected, int):
        assert length_of(begun, given, 8, hours) == expected
    else:
        with pytest.raises(UserError, match=expected):
            length_of(begun, given, 8, hours)


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


def test_another_batch_and_other_hours_are_named_by_their_own_messages():
    assert length_of(earlier(40, 40), None, 16, None) == 40
    assert length_of(earlier(40, 40), 80, 8, 1.0) == length_of(earlier(40, 40, max_hours=1.0), 80, 8, None) == 40


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
    for shown, here in (("runs/base", str(run)), ("step-00025000", LAST), ("24300-24320", "5-6")):
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
