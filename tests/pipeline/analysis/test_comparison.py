"""Comparisons from the predictions of runs, by the command line."""

import numpy as np
import pytest

from common.intervals import wilson_interval
from pipeline import evaluate
from pipeline.analysis import comparison
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS
from tests.pipeline.analysis import made_runs
from tests.pipeline.records import finetune_settings, write


def compared(root, capsys, runs, *random):
    """The cells of the table that `compare` prints, by row."""
    capsys.readouterr()
    more = ["--random", *(str(root / name) for name in random)] if random else []
    assert evaluate.main(["compare", "--runs", str(root / runs), *more]) == 0
    return [line.strip("|").strip().split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]


def interval(low, high):
    return f"{100 * low:.1f} to {100 * high:.1f}"


def gain(row):
    return tuple(float(end) for end in row[9].split(" to "))


def test_a_gain_is_shown_only_where_there_is_one(tmp_path, capsys):
    for name, right in (("good/sst2", 180), ("random/sst2", 120), ("same/sst2", 124)):
        run = made_runs.finetuning(tmp_path / name, "sst2", "x", {}, random_weights=name.startswith("random"))
        made_runs.logits(run, "dev", right, 200 - right, seed=right)
    for name, right in (("good/squad2", 30), ("random/squad2", 10)):
        run = made_runs.finetuning(tmp_path / name, "squad2", "x", {}, random_weights=name.startswith("random"))
        made_runs.answers(run, "dev", right, 40 - right, -1.0)
    squad, sst2 = compared(tmp_path, capsys, "good", "random")
    assert sst2[:3] == [f"{tmp_path}/good/sst2", "pre-trained", "sst2"]
    random = f"60.0 ({interval(*wilson_interval(120, 200))})"
    assert sst2[4:9] == ["200", "accuracy", "55.5", random, f"90.0 ({interval(*wilson_interval(180, 200))})"]
    # Sixty of two hundred examples are gained and none lost: a mean of 0.3 with standard error sqrt(0.21 / 200).
    assert gain(sst2) == pytest.approx((30 - 196 * 0.0324, 30 + 196 * 0.0324), abs=0.8)
    assert sst2[10] == "pre-training helps"
    assert (squad[6], squad[7][:5], squad[8][:5]) == ("", "25.0 ", "75.0 "), "that no answer is right says nothing"
    (same,) = compared(tmp_path, capsys, "same", "random")
    assert gain(same)[0] >= 0.0  # four of two hundred are won, none lost
    assert wilson_interval(124, 200)[0] < 0.555
    assert same[10] == "not above the majority class"
    assert [row[1] for row in compared(tmp_path, capsys, "random")] == ["random", "random"]


@pytest.mark.parametrize(
    ("weights", "gain", "exceeds_majority", "verdict"),
    [
        ("pre-trained", (0.1, 2.0), True, "pre-training helps"),
        ("pre-trained", (-0.1, 2.0), True, "no difference shown"),
        ("pre-trained", (-2.0, -0.1), True, "pre-training hurts"),
        ("pre-trained", None, True, "random weights not run"),
        ("random", (0.1, 2.0), True, "random weights themselves"),
        ("pre-trained", (0.1, 2.0), False, "not above the majority class"),
    ],
)
def test_the_verdict_follows_from_the_intervals(weights, gain, exceeds_majority, verdict):
    assert comparison.verdict_of(weights, gain, exceeds_majority) == verdict


@pytest.mark.parametrize(("task", "metric"), [("cola", "matthews"), ("mrpc", "accuracy")])
def test_a_run_gains_nothing_over_itself(task, metric):
    generator = np.random.default_rng(5)
    one = Logits(np.arange(50).astype(str), generator.random((50, 2), dtype=np.float32), generator.integers(0, 2, 50))
    assert comparison.gain_of(TASKS[task], one, one.aligned(Logits(one.ids[::-1], one.logits))) == (0.0, 0.0)
    better = Logits(one.ids, np.stack([1 - one.labels, one.labels], 1).astype(np.float32), one.labels)
    low, high = comparison.gain_of(TASKS[task], better, one)
    assert 20 < low < high


def test_predictions_without_labels_are_not_compared(tmp_path, refusal):
    assert TASKS["sst2"].estimate(Logits(np.array(["0"]), np.ones((1, 2), np.float32))) is None
    run = made_runs.finetuning(tmp_path / "run", "rte", "x", {})
    (run / "logits").mkdir()
    Logits(np.array(["0"]), np.ones((1, 2), np.float32)).save(run / "logits" / "test.npz")
    assert "labelled" in refusal(evaluate.main, "compare", "--runs", run)


def test_a_run_of_several_seeds_counts_once_unless_a_seed_is_named_and_they_are_in_order(tmp_path):
    seeds = {"seeds": [0, 1], "median": {"dev": {"accuracy": 0.5}}, "spread": {}}
    many = made_runs.finetuning(tmp_path / "many", "rte", "x", {}, **seeds)
    made_runs.finetuning(many / "seed-0", "rte", "x", {"dev": {"accuracy": 0.4}})
    within = made_runs.finetuning(many / "mrpc", "mrpc", many, {})  # a run of its own
    (summary, other) = comparison.find_runs([tmp_path])
    assert (summary.directory, other.directory) == (many, within)
    assert summary.results.scores == {"dev": {"accuracy": 0.5}}
    assert [run.directory for run in comparison.find_runs([many / "seed-0"])] == [many / "seed-0"]
    for seed in (9, 10):
        (many / f"seed-{seed}" / "logits").mkdir(parents=True)
    assert [path.name for path in comparison.member_directories(many)] == ["seed-9", "seed-10"]


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("compare", ["--runs", "{tmp}/bad"], "results.json"),
        ("compare", ["--runs", "{tmp}/plain"], "holds no logits"),
        ("compare", ["--runs", "{tmp}/plain", "--random", "{tmp}/absent"], "error: {tmp}/absent is no directory; name"),
        (
            "compare",
            ["--runs", "{tmp}/plain", "--random", "{tmp}/plain"],
            "--random: no run there is from random weights",
        ),
        ("summary", ["--run", "{tmp}/begun"], "has not ended; its metrics so far are in {tmp}/begun/metrics.jsonl"),
    ],
)
def test_mistakes_are_one_line(tmp_path, refusal, command, arguments, message):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "results.json").write_text("{")
    made_runs.finetuning(tmp_path / "plain", "rte", "nowhere", {})
    write(tmp_path / "begun", finetune_settings())
    said = refusal(evaluate.main, command, *(argument.format(tmp=tmp_path) for argument in arguments))
    assert message.format(tmp=tmp_path) in said
