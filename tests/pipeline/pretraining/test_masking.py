"""The masking settings of a run: flags, identity, runs that are older than the flags, and what reaches training."""

import json

import pytest

from common.errors import UserError
from data_prep.text.vocabulary import Vocabulary
from model.layers.heads import IGNORED_LABEL
from pipeline.checkpoint import run_directory
from pipeline.data.collate import evaluation
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import open_mixture, training_step
from pipeline.pretraining.resolve import PretrainSettings
from pipeline.settings.declare import earlier_values
from tests.pipeline.conftest import run
from tests.pipeline.pretraining.command_lines import line, resolve

pytestmark = pytest.mark.slow

CHANGES = [
    ({"--mask-probability": "0.2"}, "masking.mask_probability: 0.15 -> 0.2"),
    ({"--max-ngram": "2"}, "masking.max_ngram: 3 -> 2"),
    ({"--mask-replacement": "0.7,0.1,0.2"}, "masking.replace_with_mask: 0.8 -> 0.7"),
    ({"--mask-replacement": "0.8,0.2,0"}, "masking.replace_with_random: 0.1 -> 0.2"),
]


def test_flags_become_settings_and_the_paper_s_values_are_the_defaults(words):
    assert resolve(words).masking == MaskingSettings()
    flags = {"--mask-probability": "0.3", "--max-ngram": "1", "--mask-replacement": "0.5,0.2,0.3"}
    found = resolve(words | flags)
    assert found.masking == MaskingSettings(0.3, 1, 0.5, 0.2)
    assert found.to_dict()["masking"] == {
        "mask_probability": 0.3, "max_ngram": 1, "replace_with_mask": 0.5, "replace_with_random": 0.2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--mask-probability", "0", "mask_probability is 0;"),
        ("--mask-probability", "much", "invalid float value"),
        ("--max-ngram", "0", "max_ngram is 0;"),
        ("--mask-replacement", "0.8,0.1", "not three numbers"),
        ("--mask-replacement", "0.8,0.1,0.2", "sum to 1"),
        ("--mask-replacement", "1.2,-0.1,-0.1", "from 0 to 1"),
        ("--mask-replacement", "a,b,c", "invalid list of three numbers"),
    ],
)
def test_a_wrong_value_is_one_line(words, flag, value, message):
    with pytest.raises(UserError, match=message) as caught:
        resolve(words | {flag: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("change", "message"), CHANGES)
@pytest.mark.parametrize("lacks", [[], ["masking"], ["replace_with_random"]], ids=["nothing", "all", "one of them"])
def test_a_change_is_refused_also_by_a_run_that_began_without_these_settings(words, tmp_path, change, message, lacks):
    settings = resolve(words)
    told = settings.to_dict()
    for name in lacks:
        told.pop(name, None)
        told.get("masking", {}).pop(name, None)
    settings.output.mkdir()
    (settings.output / "settings.json").write_text(json.dumps(told))
    run_directory.check_same_settings(settings.output, settings.identity(), defaults=earlier_values(PretrainSettings))
    with pytest.raises(UserError, match=message):
        run_directory.check_same_settings(
            settings.output, resolve(words | change).identity(), defaults=earlier_values(PretrainSettings)
        )


def test_training_uses_the_settings_and_evaluation_the_paper_s(words, corpus, tmp_path):
    flags = ["--model-args", "num_hidden_layers=1", "hidden_size=32", "num_attention_heads=4", "intermediate_size=64"]
    flags += ["--steps", "1", "--log-interval", "1", "--mask-probability", "0.5"]
    run("python", "-m", "pipeline.pretrain", *line(words), *flags)
    again = run("python", "-m", "pipeline.pretrain", "--config", tmp_path / "run" / "config.yaml")
    assert "is finished (1 steps): nothing to do" in again.stdout
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    records = {record["split"]: record for record in map(json.loads, metrics)}

    continues_word = Vocabulary.load(corpus.vocabulary).continues_word
    masking = MaskingSettings(mask_probability=0.5)
    training = open_mixture([corpus.train], [1], continues_word, "sop", 0, masking)
    (held_out,) = open_mixture([corpus.held_out], [1], continues_word, "sop", 0, MaskingSettings()).collators
    (batch,) = training_step(training, 0, 0, 1, 8, 8)
    assert records["train"]["predictions"] == _predictions(batch) > 0.4 * 8 * 64
    assert records["eval"]["predictions"] == sum(map(_predictions, evaluation(held_out, 0, 1, 2)))


def _predictions(batch):
    return int((batch.masked_labels != IGNORED_LABEL).sum())
