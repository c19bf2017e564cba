"""Records of runs: mistakes in them are one line; runs of earlier versions go on (tests/data/README.md)."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import UserError
from model import huggingface
from pipeline.checkpoint.initial_weights import load_run, task_of_run
from pipeline.data.masking import MaskingSettings
from pipeline.settings.run_settings import Distilled
from pipeline.settings.settings_file import FORMAT, read_settings
from pipeline.tasks.task import SpanLimits
from tests.pipeline.conftest import REPOSITORY, run
from tests.pipeline.records import finetune_settings, pretrain_settings, write

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
    assert tuned.labels == ("one", "two")
    settings = read_settings(place / "tuned")
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": ["rte"]}, r"has task = \['rte'\], which should be a valid string"),
        ({"steps": 0}, "has steps = 0"),
        ({"engine": {}}, r"lacks the key engine\.json"),
        ({"more": 1}, "has the unknown key more"),
        ({"model": {"hidden_size": 7}}, "has model = "),
        ({"format": 1}, "has format 1, and this program reads 4 to 5"),
        ({"format": 6}, "has format 6, and this program reads 4 to 5"),
        ({"format": 4}, r"is no settings\.json of format 4"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path, changes, message):
    path = write(tmp_path, finetune_settings())
    assert read_settings(tmp_path) == finetune_settings()
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=rf"settings\.json:? .*{message}"):
        read_settings(tmp_path)


def test_flags_that_are_gone_are_left_out(tmp_path):
    settings = finetune_settings(pretraining=pretrain_settings())
    path = write(tmp_path, settings)
    content = json.loads(path.read_text())
    content["flags"]["mirror"] = content["pretraining"]["flags"]["mirror"] = "s3://bucket/run"
    content["flags"]["track"] = ["wandb"]
    path.write_text(json.dumps(content))
    assert read_settings(tmp_path) == settings


FORMAT_4 = RUNS / "format_4"


def read_changed(tmp_path: Path, run: str, **changes: Any) -> Any:
    """The settings of a run of format 4 whose settings.json is changed; `...` removes the key."""
    content = json.loads((FORMAT_4 / run / "settings.json").read_text()) | changes
    kept = {name: value for name, value in content.items() if value is not ...}
    (tmp_path / "settings.json").write_text(json.dumps(kept))
    return read_settings(tmp_path)


def test_a_pre_training_run_of_format_4_keeps_its_values(tmp_path):
    masking = {"mask_probability": 0.2, "max_ngram": 1, "replace_with_mask": 0.0, "replace_with_random": 0.0}
    settings = read_changed(
        tmp_path, "pretrained", data=[["a", 3.0], ["b", 1.0]], masking=masking | {"scheme": "paper"},
        distilled={"weights": "w", "loss": {"states": 1.0}}, skipped_batches=[[4, 6]], max_hours=2.5, eval_batches=3,
        branch=..., scored_on=...,  # which the first version of this format did not have
    )  # fmt: skip
    assert (settings.data_digests, settings.corpus_weights) == (("a", "b"), (3, 1))
    assert settings.masking == MaskingSettings(**masking)
    assert settings.distilled == Distilled("w", {"states": 1.0})
    assert (settings.skipped_batches, settings.branch, settings.scored_on) == (((4, 6),), None, "")
    flags = settings.flags
    assert (flags.output, flags.seed, flags.max_hours, flags.eval_batches) == (tmp_path, 3, 2.5, 3)
    assert (settings.engine.optimizer, settings.engine.learning_rate) == ("Lamb", 0.01)
    assert settings.fixed_values()["engine"] == {
        "train_batch_size": 8, "optimizer": {"type": "Lamb", "params": {"lr": 0.01}}, "scheduler": None,
        "gradient_clipping": None,
    }  # fmt: skip


def test_a_fine_tuning_run_of_format_4_keeps_its_values(tmp_path):
    before = json.loads((FORMAT_4 / "tuned" / "settings.json").read_text())
    assert read_changed(tmp_path, "tuned").hyperparameters == before["hyperparameters"]
    limits = {"doc_stride": 9, "max_query_length": 8, "max_answer_length": 7, "nbest": 6}
    hyperparameters = before["hyperparameters"] | limits
    settings = read_changed(tmp_path, "tuned", task="squad2", own_task=None, hyperparameters=hyperparameters)
    assert settings.limits == SpanLimits(**limits)
    assert settings.hyperparameters == hyperparameters
    assert (settings.data_place, settings.data_on_hub, settings.own_task) == (before["data_directory"], False, None)
