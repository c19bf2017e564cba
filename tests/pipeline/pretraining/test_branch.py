"""A run that goes on from a checkpoint of another run with another schedule."""

import hashlib
import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from common.errors import UserError
from pipeline.checkpoint.retention import step_of, tags
from pipeline.pretraining.pretraining_task import PreTraining
from tests.pipeline.conftest import run
from tests.pipeline.outcome import outcome
from tests.pipeline.pretraining.command_lines import CONFIG, line, resolve

SMALL = ("num_hidden_layers=1", "hidden_size=32", "num_attention_heads=4", "intermediate_size=64", "embedding_size=16")


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A folder with two runs, at a constant rate and one that falls from step 6 on; and how to start more."""
    folder = tmp_path_factory.mktemp("branch")

    def train(name, decay_steps, *more, steps=9, status=0, save_interval=4):
        config = folder / f"{name}.json"
        falling = {"warmup_num_steps": 2, "decay_num_steps": decay_steps}  # in its last steps
        scheduler = {"type": "WarmupStableDecay", "params": falling}
        config.write_text(json.dumps(CONFIG | {"scheduler": scheduler}))
        words = {
            "--model": "albert-tiny", "--model-args": SMALL, "--data": str(corpus.train), "--steps": str(steps),
            "--eval-data": str(corpus.held_out), "--eval-batches": "1", "--eval-interval": "100",
            "--save-interval": str(save_interval), "--log-interval": "1", "--keep-checkpoints": "1",
            "--deepspeed_config": str(config), "--output": str(folder / name),
        }  # fmt: skip
        return run(sys.executable, "-m", "pipeline.pretrain", *line(words), *more, status=status)

    train("constant", 0, "--keep-at", "2900", "6k")  # of about 480 tokens a step
    train("falling", 3)
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
