"""Values in the records of a run that cannot be are one line with file and key."""

import json
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from pipeline.data.masking import MaskingSettings
from pipeline.settings.run_settings import Distilled
from pipeline.settings.settings_file import read_settings
from pipeline.tasks.task import SpanLimits
from tests.pipeline.records import finetune_settings, pretrain_settings, write


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


FORMAT_4 = Path(__file__).resolve().parents[2] / "data" / "format_4"


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
