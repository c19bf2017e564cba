"""What `evaluate` shows: comparisons from the predictions of runs, and the table of a run."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from common.errors import UserError
from common.intervals import wilson_interval
from pipeline import evaluate
from pipeline.analysis import comparison
from pipeline.analysis.summary import curves_of, draw_curves, summarise, sustained_speed
from pipeline.settings.run_settings import Distilled
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS
from pipeline.training.metrics_file import read_records
from pipeline.training.training_run import Evaluation
from tests.pipeline.analysis import made_runs
from tests.pipeline.records import finetune_settings, write
from tests.pipeline.training.made_records import RECORD, evaluation, log_run, open_log, training


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


def test_a_run_is_compared_with_random_weights_of_its_own_model(tmp_path, capsys):
    for name, width, right in (("a", 64, 120), ("b", 128, 140), ("tuned", 128, 180)):
        model, is_random = {"hidden_size": width, "hidden_dropout_prob": right / 1000}, name != "tuned"
        run = made_runs.finetuning(tmp_path / name, "sst2", "x", {}, random_weights=is_random, model=model)
        made_runs.logits(run, "dev", right, 200 - right, seed=right)
    ((*_, random, _, _, _),) = compared(tmp_path, capsys, "tuned", "a", "b")
    assert random.startswith("70.0 ")
    made_runs.finetuning(tmp_path / "tuned" / "without_dev", "sst2", "x", {})  # left out
    ((*_, random, _, _, verdict),) = compared(tmp_path, capsys, "tuned", "a")
    assert (random, verdict) == ("not run", "no --random-weights run")


def test_own_tasks_of_other_labels_are_not_compared(tmp_path, capsys):
    for name, labels, right in (("tuned", ["bad", "good"], 90), ("a", ["no", "yes"], 80), ("b", ["bad", "good"], 72)):
        own = {"kind": "classification", "labels": labels, "columns": {"text": "text"}}
        is_random = name != "tuned"
        run = made_runs.finetuning(tmp_path / name, "mine", "x", {}, random_weights=is_random, own_task=own)
        made_runs.logits(run, "dev", right, 120 - right)
    ((*_, random, _, _, _),) = compared(tmp_path, capsys, "tuned", "a", "b")
    assert random.startswith("60.0 ")


@pytest.mark.parametrize(
    ("weights", "gain", "exceeds_majority", "verdict"),
    [
        ("pre-trained", (0.1, 2.0), True, "pre-training helps"),
        ("pre-trained", (-0.1, 2.0), True, "no difference shown"),
        ("pre-trained", (-2.0, -0.1), True, "pre-training hurts"),
        ("pre-trained", None, True, "no --random-weights run"),
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
    seeds = {"seeds": [{}, {}], "median": {"dev": {"accuracy": 0.5}}, "spread": {}}
    many = made_runs.finetuning(tmp_path / "many", "rte", "x", {}, **seeds)
    made_runs.finetuning(many / "seed-0", "rte", "x", {"dev": {"accuracy": 0.4}})
    within = made_runs.finetuning(many / "mrpc", "mrpc", many, {})  # a run of its own
    (summary, other) = comparison.find_runs([tmp_path])
    assert (summary.directory, other.directory) == (many, within)
    assert summary.results.scores == {"dev": {"accuracy": 0.5}}
    assert [run.directory for run in comparison.find_runs([many / "seed-0"])] == [many / "seed-0"]
    for seed in (9, 10):
        (many / f"seed-{seed}").mkdir()
        made_runs.logits(many / f"seed-{seed}", "dev", seed, 1)
    assert [path.name for path in comparison.member_directories(many)] == ["seed-9", "seed-10"]
    assert len(comparison._first_predictions(summary)["dev"]) == 10


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("compare", ["--runs", "{tmp}/bad"], "results.json"),
        ("compare", ["--runs", "{tmp}/seeds"], "seeds/results.json"),
        ("compare", ["--runs", "{tmp}/plain"], "none of the runs has predictions of labelled examples"),
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
    made_runs.finetuning(tmp_path / "seeds", "rte", "nowhere", {}, seeds=[1], median={})
    made_runs.finetuning(tmp_path / "plain", "rte", "nowhere", {})
    write(tmp_path / "begun", finetune_settings())
    said = refusal(evaluate.main, command, *(argument.format(tmp=tmp_path) for argument in arguments))
    assert message.format(tmp=tmp_path) in said


def test_the_table_says_what_the_records_say(tmp_path):
    log_run(tmp_path / "base", 0, 60)
    lines = summarise(tmp_path / "base", tmp_path / "export").splitlines()
    shown = {line[:24].strip(): line[24:] for line in lines}
    assert shown["steps"] == "60 of 100, 1,200 tokens"
    assert shown["held-out MLM loss"] == "6.500 nats, 8.3 % above the unigram entropy 6.000"
    assert shown["held-out SOP accuracy"] == "60.0 % (95 % interval 50.0 to 70.0) of 40 pairs"
    assert shown["held-out NSP accuracy"].endswith(", not trained) of 40 pairs")
    assert shown["training speed"] == "50 tokens/s in fp16"
    assert shown["time"] == "60 s on 1 rank"
    assert "evaluated at step" not in shown
    log_run(tmp_path / "later", 0, 70)
    assert "evaluated at step       60" in summarise(tmp_path / "later", tmp_path / "export").splitlines()
    log_run(tmp_path / "begun", 0, 10)
    lines = summarise(tmp_path / "begun", tmp_path / "export").splitlines()
    shown = {line[:24].strip(): line[24:] for line in lines}
    assert shown["training loss"] == "7.600 (not evaluated yet, or no --eval-data)"
    assert (shown["steps"], shown["time"]) == ("10 of 100, 200 tokens", "10 s on 1 rank")
    assert not [line for line in lines if "held-out" in line]
    legends = [axes.get_legend().get_texts() for axes in curves_of(tmp_path / "begun").axes]
    assert [[text.get_text() for text in texts] for texts in legends] == [["training"], ["training", "chance"]]
    with (tmp_path / "begun" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 14, "split": "save", "save_seconds": 0.5}\n')
    saved, *_ = summarise(tmp_path / "begun", tmp_path / "export").splitlines()
    assert saved.split(maxsplit=1) == ["steps", "14 of 100, 200 tokens by step 10"]
    (tmp_path / "begun" / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="begun has no speed yet; give more --steps"):
        summarise(tmp_path / "begun", tmp_path / "export")


def test_a_distillation_and_a_run_without_sentences_have_a_table(tmp_path):
    distances = {"loss": 0.5, "distil_states": 0.25, "tokens": 7}
    of_words = {name: value for name, value in evaluation(10).items() if name[:3] not in ("sop", "nsp")}
    for name, record, found, expected in (
        ("student", {"distilled": Distilled("", {})}, distances, {"held-out distil_states": "0.2500"}),
        ("mlm", {"objective": "mlm"}, of_words, {"held-out MLM accuracy": "10.0 % of 900 tokens"}),
    ):
        settings = dataclasses.replace(RECORD, **record)
        write(tmp_path / name, settings)
        log, _ = open_log(tmp_path / name, 0, settings)
        for step in (10, 20):
            log.log(step, training(step))
        log.log(20, found, "eval")
        log.on_end()
        lines = [line for line in summarise(tmp_path / name, tmp_path / "export").splitlines() if "held-out" in line]
        shown = {line[:24].strip(): line[24:] for line in lines}
        assert expected.items() <= shown.items()
    assert len(shown) == 2, "no row of sentences"
    with pytest.raises(UserError, match="has no curves: it has no MLM loss"):
        curves_of(tmp_path / "student")


def test_each_held_out_set_has_rows_and_a_curve(tmp_path):
    flags = dataclasses.replace(RECORD.flags, eval_data=(Path("held/wikipedia"), Path("held/books")))
    record = dataclasses.replace(RECORD, flags=flags)
    log, run = open_log(tmp_path, 0, record)
    write(tmp_path, record)
    for step in (10, 20):
        run.state.step = step
        log.log(step, training(step))
        books = {f"books/{name}": value for name, value in (evaluation(step) | {"mlm_loss": 5.4}).items()}
        log.on_evaluation(Evaluation(evaluation(step) | books, 0.1, "mlm_loss"))
    log.on_end()
    shown = summarise(tmp_path, tmp_path / "export")
    assert "wikipedia MLM loss      6.500 nats, 8.3 % above the unigram entropy 6.000\n" in shown
    assert "books MLM loss          5.400 nats, 10.0 % below the unigram entropy 6.000\n" in shown
    assert "books SOP accuracy      60.0 % (95 % interval 50.0 to 70.0) of 40 pairs\n" in shown
    losses, _ = curves_of(tmp_path).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in losses.lines}
    assert drawn["held out, wikipedia"] == [6.5, 6.5]
    assert drawn["held out, books"] == [5.4, 5.4]
    assert "the unigram entropy of each" in drawn


def test_the_table_of_a_fine_tuned_run_has_its_metrics(tmp_path, capsys):
    one = made_runs.finetuning(tmp_path / "one", "rte", "runs/base", {"dev": {"accuracy": 0.65}}, steps=40, best_step=9)
    assert [line.split("  ")[0] for line in summarise(one, one).splitlines()[:5]] == [
        *("task", "initial weights", "steps", "dev accuracy", "run"),
    ]
    assert "dev accuracy            0.65\n" in summarise(one, one)
    figures = {"median": {"dev": {"accuracy": 0.65}}, "spread": {"dev": {"accuracy": [0.6, 0.7]}}, "seeds": [{}, {}]}
    several = made_runs.finetuning(tmp_path / "several", "rte", "runs/base", None, **figures)
    assert "0.65 (0.6 to 0.7)\n" in summarise(several, several)
    made_runs.finetuning(tmp_path / "red", "rte", "runs/\x1b[31mred\nrun", {"dev": {"accuracy": 0.65}})
    assert evaluate.main(["summary", "--run", str(tmp_path / "red")]) == 0
    assert "initial weights         runs/\\x1b[31mred\\nrun\n" in capsys.readouterr().out, (
        "what moves a terminal is escaped"
    )


def test_the_curves_are_the_records(tmp_path):
    log_run(tmp_path / "base", 0, 60)
    figure = curves_of(tmp_path / "base")
    losses, accuracies = figure.axes
    assert losses.lines[2].get_label() == "the unigram entropy"
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1, "a legend hides no point"
    training, evaluations = (read_records(tmp_path / "base", split) for split in ("train", "eval"))
    for line, records, name in (
        (losses.lines[0], training, "mlm_loss"),
        (losses.lines[1], evaluations, "mlm_loss"),
        (accuracies.lines[0], evaluations, "sop_accuracy"),
    ):
        assert list(line.get_xdata()) == [record["step"] for record in records]
        assert list(line.get_ydata()) == [record[name] for record in records]
    assert losses.lines[2].get_ydata() == [evaluations[-1]["mlm_unigram_entropy"]] * 2
    draw_curves(tmp_path / "base", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    draw_curves(tmp_path / "base", tmp_path / "curves.png")  # its own picture is replaced
    (tmp_path / "notes.png").write_text("of a person")
    with pytest.raises(UserError, match="is no picture of this command"):
        draw_curves(tmp_path / "base", tmp_path / "notes.png")
    assert (tmp_path / "notes.png").read_text() == "of a person"
    with pytest.raises(UserError, match="there is no directory"):
        draw_curves(tmp_path / "base", tmp_path / "none" / "a.png")
    assert str(tmp_path / "curves.png") in summarise(tmp_path / "base", tmp_path, tmp_path / "curves.png")


@pytest.mark.parametrize("value", [None, {"a": 1.0}, "absent"])
def test_records_that_were_changed_by_hand_are_one_line_at_most(tmp_path, value):
    log_run(tmp_path, 0, 60)
    given, refused = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()], set()
    for name in {name for record in given for name in record}:
        changed = [record | {name: value} for record in given]
        changed = [{key: one for key, one in record.items() if one != "absent"} for record in changed]
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in changed))
        for command, *arguments in ((summarise, tmp_path, tmp_path), (curves_of, tmp_path)):
            try:
                command(*arguments)
            except UserError:
                refused.add(name)
    assert {"step", "split"} <= refused
    assert "mlm_unigram_entropy" in refused or value is None  # null is a number that was not finite


def test_the_speed_is_that_of_the_run_and_not_of_the_last_interval():
    slow, fast = {"tokens": 1000, "tokens_per_second": 10.0}, {"tokens": 2000, "tokens_per_second": 1000.0}
    assert sustained_speed([slow, fast]) == pytest.approx(2000 / (100 + 1))
    assert sustained_speed([{"tokens": 5, "tokens_per_second": None}, {"tokens": 9}]) is None
    assert sustained_speed([]) is None
    branch = [{"tokens": 5100, "interval_tokens": 100, "tokens_per_second": 50}, slow | {"tokens": 5300}]
    assert sustained_speed(branch) == pytest.approx(300 / (100 / 50 + 200 / slow["tokens_per_second"]))
