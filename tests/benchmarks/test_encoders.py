"""The page of an encoder beside `transformers.Trainer`: its figures are those of the parts, and both systems train."""

import json
import os
from pathlib import Path

import pytest
import transformers

from benchmarks import encoders
from common.errors import UserError
from pipeline.data import sampler
from pipeline.tasks.files import reading
from pipeline.tasks.registry import find_task
from tests.pipeline.pretraining.trained_models import export
from tests.pipeline.tasks import task_files
from tests.pipeline.workers import forked


def write(path, args, score, speed, seconds):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = {"settings": encoders.settings_of(args), "metrics": {"matthews": score, "accuracy": 0.5}}
    path.write_text(json.dumps(part | {"examples_per_second": speed, "processor_seconds": seconds}))


def test_the_page_has_means_and_median_ratios(tmp_path, capsys):
    work = tmp_path / "work"
    words = ["--init", "models/tiny", "--data", "none", "--out", str(work), "--publish", str(tmp_path / "page")]
    words += ["--tasks", "cola", "rte"]
    args = encoders.parser().parse_all(words)
    for seed, (score, speed, seconds) in enumerate(((0.25, 30.0, 10.0), (0.75, 80.0, 12.0))):
        write(work / "cola" / f"this-{seed}.json", args, score, speed, seconds)
    write(work / "cola" / "trainer-0.json", args, 0.5, 10.0, 25.0)
    encoders.publish(args)
    (row,) = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("| cola")]
    # Two seeds: the half interval is t(0.975, 1) = 12.706 times 25 / sqrt(1), with a standard error of 25.
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == ["cola", "matthews", "50.0 ± 317.7 (2)", "50.0 (1)", "", "-25.0 (1)", "3.00", "2.50"]
    (task,) = json.loads((tmp_path / "page.json").read_text())["tasks"]
    assert task["scores"]["this"] == {"matthews": [0.25, 0.75]}
    assert capsys.readouterr().out
    with pytest.raises(UserError, match="made with other settings"):
        encoders.publish(encoders.parser().parse_all([*words, "--precision", "bf16"]))


@pytest.mark.slow
def test_both_systems_train_and_a_second_command_makes_nothing_again(corpus, tmp_path, monkeypatch):
    """Each part is made in this process, and pipeline.finetune in a forked one. Trainer gets the same batches."""
    seen: list[float] = []  # labels that Trainer has trained on
    step = transformers.Trainer.training_step

    def see(self, model, inputs, *more):
        seen.extend(inputs["labels"].tolist())
        return step(self, model, inputs, *more)

    monkeypatch.setattr(transformers.Trainer, "training_step", see)

    def finetune(words, check):
        return forked.run_module(words[2], words[3:], Path.cwd(), os.environ | {"DS_ACCELERATOR": "cpu"}, timeout=1500)

    monkeypatch.setattr(encoders.subprocess, "run", finetune)
    monkeypatch.setattr(
        encoders, "_start", lambda args, words, *part: encoders.main([*words, "--part", *map(str, part)])
    )
    task_files.write_all(tmp_path)
    export(tmp_path / "init", corpus.vocabulary, num_hidden_layers=1, intermediate_size=32)
    words = ["--init", str(tmp_path / "init"), "--data", str(tmp_path / "glue"), "--out", str(tmp_path / "work")]
    words += ["--tasks", "stsb", "--seeds", "1", "--epochs", "1", "--max-length", "32"]
    left = tmp_path / "work" / "stsb" / "this-0"  # of an interrupted part, which begins anew
    left.mkdir(parents=True)
    (left / "settings.json").write_text("{")
    assert encoders.main(words) == 0
    train = reading.read(find_task("stsb"), str(tmp_path / "glue"))["train"]
    settings = json.loads((left / "settings.json").read_text())
    batches = [sampler.step_positions(step, 0, 1, 32, 32) for step in range(settings["steps"])]
    expected = [train[row].label for (batch,) in batches for row in sampler.rows_at(batch, len(train), seed=0)[1]]
    assert expected[:32] != [example.label for example in train[:32]], "the test has lost its power"
    assert seen == pytest.approx(expected)
    parts = {path.name: path.read_text() for path in (tmp_path / "work" / "stsb").glob("*.json")}
    assert parts.keys() == {"this-0.json", "trainer-0.json"}
    for content in map(json.loads, parts.values()):
        assert content["metrics"].keys() == {"pearson", "spearman"}
        assert content["examples_per_second"] > 0
    assert encoders.main(words) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "work" / "stsb").glob("*.json")} == parts
