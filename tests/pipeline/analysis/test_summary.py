"""The table of a run."""

import dataclasses
import json
from pathlib import Path

import pytest

from common.errors import UserError
from pipeline.analysis.summary import curves_of, draw_curves, summarise, sustained_speed
from pipeline.training.metrics_file import read_records
from pipeline.training.training_run import Evaluation
from tests.pipeline.analysis import made_runs
from tests.pipeline.records import write
from tests.pipeline.training.made_records import RECORD, evaluation, log_run, open_log, training


def test_the_table_says_what_the_records_say(tmp_path):
    log_run(tmp_path / "base", 0, 60)
    lines = summarise(tmp_path / "base", tmp_path / "export").splitlines()
    shown = {line[:24].strip(): line[24:] for line in lines}
    assert shown["steps"] == "60 of 100, 1,200 tokens"
    assert shown["held-out MLM loss"] == "6.500 nats, 8.3 % above the unigram entropy 6.000"
    assert shown["held-out SOP accuracy"] == "60.0 % (95 % interval 50.0 to 70.0) of 40 pairs"
    assert shown["training speed"] == "50 tokens/s in fp16"
    assert shown["time"] == "60 s on 1 rank"


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


def test_the_table_of_a_fine_tuned_run_has_its_metrics(tmp_path):
    one = made_runs.finetuning(tmp_path / "one", "rte", "runs/base", {"dev": {"accuracy": 0.65}}, steps=40, best_step=9)
    assert [line.split("  ")[0] for line in summarise(one, one).splitlines()[:5]] == [
        *("task", "initial weights", "steps", "dev accuracy", "run"),
    ]
    assert "dev accuracy            0.65\n" in summarise(one, one)
    figures = {"median": {"dev": {"accuracy": 0.65}}, "spread": {"dev": {"accuracy": [0.6, 0.7]}}, "seeds": [{}, {}]}
    several = made_runs.finetuning(tmp_path / "several", "rte", "runs/base", None, **figures)
    assert "0.65 (0.6 to 0.7)\n" in summarise(several, several)


def test_the_curves_are_the_records(tmp_path):
    log_run(tmp_path / "base", 0, 60)
    losses, accuracies = curves_of(tmp_path / "base").axes
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
