"""What pre-training and fine-tuning do alike before anything is built or written, and --deterministic."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from common.errors import UserError
from pipeline import finetune, pretrain
from pipeline.distributed.exits import EXIT_STOPPED
from pipeline.distributed.rendezvous import Answer, _first_problem
from pipeline.engine import hardware
from pipeline.run import facts, start
from tests.pipeline.finetuning.finetune_runs import be_no_rank
from tests.pipeline.outcome import differences
from tests.pipeline.pretraining.command_lines import CONFIG
from tests.pipeline.pretraining.trained_models import export
from tests.pipeline.tasks import task_files
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import Ended, run_and_move, run_each

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def commands(corpus, tmp_path_factory):
    """For each command its `main` and the start of its command line."""
    root = tmp_path_factory.mktemp("commands")
    task_files.write_all(root)
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    export(root / "export", corpus.vocabulary, **sizes, embedding_size=8)
    return {
        "pretrain": (pretrain.main, ["--model", "albert-tiny", "--data", corpus.train]),
        "finetune": (finetune.main, ["--task", "sst2", "--init", root / "export", "--data", root / "glue"]),
    }


@pytest.mark.parametrize(
    ("change", "flags", "message"),
    [
        ({}, ("--steps", "3", "--warmup-steps", "4"), "4 warm-up steps do not fit into 3 steps; lengthen the run"),
        ({"scheduler": {"type": "OneCycle"}}, (), "scheduler.type 'OneCycle' is not known"),
        ({"zero_optimisation": {"stage": 1}}, (), "zero_optimisation"),
    ],
)
@pytest.mark.parametrize("name", ["pretrain", "finetune"])
def test_a_wrong_schedule_or_json_ends_the_command_before_anything_is_built(
    commands, tmp_path, monkeypatch, refusal, name, change, flags, message
):
    main, words = commands[name]
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG | change))
    output = tmp_path / "run"
    be_no_rank(monkeypatch)
    monkeypatch.setattr(start, "train_all", lambda *arguments: pytest.fail("the mistake was not found in time"))
    assert message in refusal(main, *words, "--deepspeed_config", config, "--output", output, *flags)
    assert not output.exists()


def test_a_run_that_was_moved_or_copied_goes_on_where_it_is(corpus, tmp_path):
    command = Run("run", 1, 12, flags=("--steps", "6", "--eval-interval", "6")).command(corpus, tmp_path)
    ended = processes.run(1, run_and_move, command, tmp_path, 4, scratch=tmp_path)
    assert [end.status for end in ended] == [0, EXIT_STOPPED, 0, 0, 2, 1], ended
    assert not (tmp_path / "first").exists()
    for name, end in zip(("moved", "copied"), ended[2:4]):
        assert "resuming from step 4" in end.stdout
        assert differences(tmp_path / name, tmp_path / "straight") == []
    assert ended[4].stderr.startswith(f"error: no checkpoint in {tmp_path / 'damaged' / 'checkpoints'} is complete: ")
    assert (tmp_path / "damaged" / "settings.json").samefile(tmp_path / "settings.before"), "it was written again"
    # A line of metrics may come first, and cannot be written.
    last = ended[5].stderr.splitlines()[-1]
    assert last.startswith("error: the checkpoint of step 6 failed: ")
    assert not (tmp_path / "removed").exists()


@pytest.mark.parametrize(("stage", "line"), [(0, "rank 1 on host b: the processor (stage 0 needs one kind; "), (1, "")])
def test_ranks_with_other_processors_are_refused_at_stage_0_alone(commands, corpus, tmp_path, monkeypatch, stage, line):
    """There each rank updates all weights, and ranks that round in other ways end at the first save."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG | {"zero_optimization": {"stage": stage}}))
    words = [*commands["pretrain"][1], "--deepspeed_config", config, "--output", tmp_path / "run"]
    flags, answers = pretrain.parse([str(word) for word in words]), []
    for rank, processor in enumerate(("Xeon", "EPYC")):
        monkeypatch.setattr(start, "processor", lambda processor=processor: processor)
        answers.append(Answer(rank, "ab"[rank], facts=start.check(flags, pretrain.make_tasks(flags, 2))))
    assert _first_problem(answers)[: len(line) or None] == line


def test_a_host_with_another_file_or_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "requirements.txt").write_text("torch==0\n")
    (module := tmp_path / "pipeline" / "loss.py").write_text("1")
    (shards := tmp_path / "shards").mkdir()
    (shards / "manifest.json").write_text("{}")
    monkeypatch.setattr(facts, "ROOT", tmp_path)
    here = facts.facts_of_host([shards])
    assert here["packages"].keys() == {"torch"}
    assert facts.differences(here, here) == []
    module.write_text("2")
    (shards / "shard-0").write_text("")
    there = facts.facts_of_host([shards]) | {"packages": {"torch": "0"}}
    lines = facts.differences(there, here)
    for line, name in zip(lines, ("code: pipeline/loss.py", "packages: torch", f"shards: {shards}"), strict=True):
        assert line.startswith(f"other {name}")
    for others, more in ((4, ""), (5, " and 1 more")):
        changed = there | {"packages": {str(name): "0" for name in range(others - 1)}}
        (line,) = (line for line in facts.differences(changed, here) if "packages" in line)
        assert line.count(" here)") == 4
        assert f"here){more}; " in line
    same = {name for name, digest in facts.summary(here).items() if facts.summary(there)[name] == digest}
    assert same == {"the Python"}


def test_a_checkpoint_beyond_the_end_of_the_run_is_refused(tmp_path):
    settings = SimpleNamespace(steps=9, flags=SimpleNamespace(output=tmp_path, max_hours=None))
    saved = {"step": 9, "seconds": 1.0, "tokens": 5, "meter": None, "finished": True}
    assert start._state_of(saved, settings).step == 9
    with pytest.raises(UserError, match="has a checkpoint of step 1,000,000,000, and the run has 9 steps; restore"):
        start._state_of(saved | {"step": 10**9}, settings)


def train_twice(command: list[str], folder: Path, stop: int) -> tuple[list[Ended], dict[str, Any]]:
    """Runs one command line with --deterministic to its end in `folder`/straight, and in two starts in `folder`/twice.

    Returns what became of the three starts, and torch's switches.
    """
    runs = {name: [*command, "--deterministic", "--output", str(folder / name)] for name in ("straight", "twice")}
    ended = run_each([(runs["straight"], None), (runs["twice"], stop), (runs["twice"], None)])
    return ended, {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "only a warning": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
        "environment": {name: os.environ.get(name) for name in hardware.DETERMINISTIC_ENVIRONMENT},
    }


def test_deterministic_training_gives_the_same_bits_again(corpus, tmp_path):
    words = Run("run", stage=3, flags=("attention_probs_dropout_prob=0.1",)).command(corpus, tmp_path)
    ended, switches = processes.run(2, train_twice, words, tmp_path, 4, scratch=tmp_path)
    assert [end.status for end in ended] == [0, EXIT_STOPPED, 0], ended
    assert all("deterministic algorithms" in end.stdout for end in ended)
    assert differences(tmp_path / "twice", tmp_path / "straight") == []
    assert json.loads((tmp_path / "twice" / "settings.json").read_text())["flags"]["deterministic"] is True
    assert switches == {
        "algorithms": True,
        "only a warning": False,
        "cudnn": (True, False),
        "environment": hardware.DETERMINISTIC_ENVIRONMENT,
    }
