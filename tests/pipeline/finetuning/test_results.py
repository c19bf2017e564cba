"""The summary of several seeds."""

import json

from pipeline.finetuning import results
from tests.pipeline.analysis import made_runs


def test_the_summary_has_median_and_spread(tmp_path):
    seeds = [
        made_runs.finetuning(
            tmp_path / f"seed-{seed}", "rte", "gone", {"test": {"accuracy": accuracy}}, seed=seed, best_step=1,
            model={}, hyperparameters={}, examples={"test": 2},
        )
        for seed, accuracy in enumerate((0.5, 1.0, 0.25))
    ]  # fmt: skip
    results.write_summary(tmp_path, seeds)
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["median"] == {"test": {"accuracy": 0.5}}
    assert found["spread"] == {"test": {"accuracy": [0.25, 1.0]}}
    assert [(seed["seed"], seed["directory"]) for seed in found["seeds"]] == [(n, f"seed-{n}") for n in range(3)]
