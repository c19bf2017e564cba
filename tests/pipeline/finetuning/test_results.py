"""The summary of several seeds."""

import json

from pipeline.finetuning import results
from tests.pipeline.analysis import made_runs


def test_a_summary_of_earlier_predictions_is_none(tmp_path):
    seeds = [
        made_runs.finetuning(
            tmp_path / f"seed-{seed}", "rte", "gone", {"test": {"accuracy": 0.5}}, seed=seed, best_step=1, model={},
            hyperparameters={}, examples={"test": 2},
        )
        for seed in (0, 1)
    ]  # fmt: skip
    assert not results.is_summed_up(tmp_path, seeds)
    results.write_summary(tmp_path, seeds)
    assert results.is_summed_up(tmp_path, seeds)
    assert not results.is_summed_up(tmp_path, seeds[:1])
    # Another test file was predicted, and the command was killed before it wrote the summary.
    found = json.loads((seeds[1] / "results.json").read_text())
    (seeds[1] / "results.json").write_text(json.dumps(found | {"metrics": {"test": {"accuracy": 1.0}}}))
    assert not results.is_summed_up(tmp_path, seeds)
    results.write_summary(tmp_path, seeds)
    assert json.loads((tmp_path / "results.json").read_text())["median"] == {"test": {"accuracy": 0.75}}
