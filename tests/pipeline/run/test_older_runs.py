"""Runs of earlier versions are resumed, fine-tuned from and opened (tests/data/README.md)."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from model import huggingface
from pipeline.checkpoint.initial_weights import load_run, task_of_run
from pipeline.settings.settings_file import FORMAT, read_settings
from tests.pipeline.conftest import REPOSITORY, run

RUNS = REPOSITORY / "tests" / "data"
AFTER = {"format_4": [4.769441941205193, 4.727564194623162, 4.681601047515869]}
"""The losses of the steps 4 to 6, as the version that made the run computed them when it resumed the run."""
MODEL = "num_hidden_layers=1 hidden_size=16 num_attention_heads=2 intermediate_size=32 embedding_size=8"


@pytest.fixture(params=sorted(AFTER))
def place(request, tmp_path):
    return Path(shutil.copytree(RUNS / request.param, tmp_path / request.param))


def test_an_older_run_goes_on_as_its_own_version_would(place):
    words = ["--model", "albert-tiny", "--model-args", *MODEL.split(), "--data", place / "shards", "--output"]
    words += [place / "pretrained", "--deepspeed_config", place / "config.json", "--steps", "6", "--log-interval", "1"]
    ended = run(sys.executable, "-m", "pipeline.pretrain", *words, "--seed", "3")
    assert "resuming from step 3" in ended.stdout
    lines = map(json.loads, (place / "pretrained" / "metrics.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in lines if line["split"] == "train" and line["step"] > 3]
    np.testing.assert_allclose(losses, AFTER[place.name], rtol=1e-5)
    written = json.loads((place / "pretrained" / "settings.json").read_text())
    assert (written["format"], written["flags"]["seed"]) == (FORMAT, 3)


def test_older_runs_and_exports_are_opened(place):
    model = load_run(place / "pretrained")
    exported = huggingface.load(place / "pretrained" / "export")
    for name, tensor in exported.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), model.state_dict()[name].numpy(), err_msg=name)
    tuned = task_of_run(place / "tuned")
    assert tuned is not None
    assert tuned.labels == ("one", "two")
    settings = read_settings(place / "tuned")
    assert settings.pretraining is not None
    assert settings.pretraining.corpora[0].documents == 8
    run(sys.executable, "-m", "pipeline.export", "--run", place / "tuned", "--out", place / "tuned" / "export")
    run(
        sys.executable, "-m", "pipeline.predict", "--run", place / "tuned", "--input", place / "texts.csv",
        "--out", place / "predicted.jsonl",
    )  # fmt: skip
    assert len((place / "predicted.jsonl").read_text().splitlines()) == 5


def test_an_older_run_is_fine_tuned_and_its_fine_tuning_is_resumed(place):
    files = ["--train-file", place / "texts.csv", "--dev-file", place / "texts.csv"]
    words = ["--task", "classification", "--init", place / "pretrained", *files, "--batch-size", "4"]
    words += ["--max-length", "32", "--steps", "2", "--output"]
    finetune = [sys.executable, "-m", "pipeline.finetune", *words]
    assert "finished after 2 steps" in run(*finetune, place / "again").stdout
    shutil.rmtree(place / "tuned" / "logits")
    (place / "tuned" / "done").unlink()
    assert "resuming from step 2" in run(*finetune, place / "tuned").stdout
    assert (place / "tuned" / "logits" / "dev.npz").exists()
