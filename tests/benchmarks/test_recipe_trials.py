"""The trials of small models: their settings are accepted, their page is made from their results, runs are resumed."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.study import recipe_trials
from benchmarks.study.recipe_trials import RECIPE, TRIALS, Result, markdown
from pipeline.engine import config as engine_config
from pipeline.engine.machine.hardware import Hardware
from pipeline.pretraining import settings as pretraining_settings
from tests.pipeline.conftest import REPOSITORY

RESULTS = REPOSITORY / "benchmarks" / "results" / "recipe_trials"


@pytest.mark.parametrize("name", TRIALS)
def test_every_trial_is_a_command_that_pretrain_takes(name: str, tmp_path: Path) -> None:
    words, config = recipe_trials.command(TRIALS[name], tmp_path, tmp_path / name, seed=1, tokens=100_000)
    args = pretraining_settings.parse(words[3:])
    fields = pretraining_settings.parse_fields(args.model_args)
    assert fields.keys() >= RECIPE.model.keys()
    assert args.seed == 1
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(config))
    engine = engine_config.fit(engine_config.load(path), 1, Hardware("CPU", fp16=False, bf16=True), "auto")
    assert engine.train_batch_size * args.steps * TRIALS[name].length == pytest.approx(100_000, rel=0.1)


@pytest.mark.parametrize("tokens", [1, 1000, 4 * 1024, 5 * 1024, 400_000])
def test_each_third_of_a_trial_ends_with_an_evaluation(tokens: int, tmp_path: Path) -> None:
    words, _ = recipe_trials.command(RECIPE, tmp_path, tmp_path / "recipe", 0, tokens)
    steps, interval = (int(words[words.index(flag) + 1]) for flag in ("--steps", "--eval-interval"))
    assert steps == 3 * interval >= 3


def test_no_two_runs_share_a_file(tmp_path: Path) -> None:
    words = [
        recipe_trials.command(trial, tmp_path, tmp_path / f"{name}-seed-{seed}", seed, 1000)[0]
        for name, trial in TRIALS.items()
        for seed in range(3)
    ]
    for flag in ("--deepspeed_config", "--output"):
        assert len({line[line.index(flag) + 1] for line in words}) == 3 * len(TRIALS)


def test_every_trial_changes_something_and_says_what() -> None:
    assert len({trial.varied for trial in TRIALS.values()}) == len(TRIALS)
    assert [name for name, trial in TRIALS.items() if trial == RECIPE] == ["recipe"]
    settings = [str(dataclasses.replace(trial, varied="")) for trial in TRIALS.values()]
    assert len(set(settings)) == len(TRIALS)


def test_the_page_has_a_row_for_each_trial() -> None:
    curve = [{"mlm_below_unigram": part / 10, "sop_accuracy": 0.5} for part in (1, 2, 3)]
    without = [{"mlm_below_unigram": 0.2} for _ in range(3)]
    results = [Result("recipe", seed, 20_000, 4.0, curve) for seed in (0, 1)]
    page = markdown([*results, Result("no-sentence-loss", 0, 10_000, 2.0, without)], 20_000)
    assert "| nothing: the recipe | 2 | 0.02 | 10.0 ± 0.0 | 20.0 ± 0.0 | 30.0 ± 0.0 | 50.0 ± 0.0 | 4 |" in page
    assert "| no sentence loss | 1 | 0.01 | 20.0 | 20.0 | 20.0 |  | 2 |" in page


def test_a_trial_of_more_operations_reads_fewer_tokens() -> None:
    read = {name: recipe_trials.tokens_of(trial, 400_000) for name, trial in TRIALS.items()}
    same = ("recipe", "paper-start", "rate-0.001", "lamb", "batch-32", "unshared", "single-masks", "dropout")
    assert {read[name] for name in same} == {400_000}
    assert read["layers-4"] < read["masks-0.3"] < 400_000 < read["rows-64"] < read["rows-32"] < read["layers-1"]
    # Of a layer of twice the width, all but the attention's scores has four times the operations.
    assert 100_000 < read["width-256"] < 160_000


def test_the_committed_page_is_made_from_the_committed_results() -> None:
    record = json.loads(RESULTS.with_suffix(".json").read_text())
    results = [Result(**result) for result in record["results"]]
    page = markdown(results, record["tokens"])
    assert RESULTS.with_suffix(".md").read_text() == page + "\n"
    assert page in (REPOSITORY / "docs" / "study.md").read_text()


@pytest.mark.slow
def test_a_trial_is_run_once_and_read_again(
    corpus: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--documents", str(corpus.documents), "--work", str(tmp_path / "work"), "--trials", "recipe"]
    words += ["--seeds", "1", "--tokens", "6000", "--out", str(tmp_path / "found")]
    monkeypatch.setattr(recipe_trials, "VOCABULARY_SIZE", 200)
    assert recipe_trials.main(words) == 0
    assert "held out  mlm" in capfd.readouterr().out
    first = json.loads((tmp_path / "found.json").read_text())
    (result,) = first["results"]
    assert len(result["curve"]) == 3
    assert result["tokens"] == pytest.approx(6000, rel=0.1)
    assert recipe_trials.main(words) == 0
    assert "held out  mlm" not in capfd.readouterr().out
    assert json.loads((tmp_path / "found.json").read_text())["results"] == first["results"]
