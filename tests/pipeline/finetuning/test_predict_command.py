"""The command of prediction: its columns and formats, files and pipes."""

import argparse
import json
import math
import re

import pytest

from common.errors import UserError
from common.files import locks
from pipeline import predict
from pipeline.finetuning.predictor import Predictor
from pipeline.predict import answered, columns_for, read_each, read_rows, write
from pipeline.tasks.files.rows import Columns
from pipeline.tasks.files.tables import read_table
from pipeline.tasks.registry import TASKS
from tests.pipeline.pretraining.trained_models import export
from tests.pipeline.tasks import own_files


def columns(task, *words):
    args = predict.parser().parse_all(["--run", "run", *words])
    return columns_for(TASKS[task], args.text_column, args.second_text_column, args.choice_columns)


def test_flags_replace_the_columns_of_the_run():
    assert columns("race") == TASKS["race"].input_columns
    assert columns("rte", "--text-column", "a", "--second-text-column", "b") == Columns("a", "b")
    assert columns("race", "--choice-columns", "c").choices == ("c",)
    for flag in ("--second-text-column", "--choice-columns"):
        with pytest.raises(UserError, match=f"{flag}: the run was trained without such a column"):
            columns("sst2", flag, "b")


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
def test_every_format_holds_the_same_rows(tmp_path, ending):
    rows = [{"text": 'a "b",\t', "probabilities": {"x": 0.25, "é": 0.75}}, {"text": "c", "probabilities": {"x": 1.0}}]
    write(str(tmp_path / f"out.{ending}"), rows)
    found = read_table(tmp_path / f"out.{ending}").rows
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    given = [row["probabilities"] for row in found]
    shares = [json.loads(cell) for cell in given] if ending in ("csv", "tsv") else given
    assert shares[0] == rows[0]["probabilities"]


def test_a_row_that_cannot_be_read_is_named_and_the_others_are_predicted(tmp_path, capsys):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"sentence": text}) + "\n" for text in ("good", " ", 5, "bad")))
    texts = read_each(read_rows(str(path)), Columns("sentence"), lambda row: row.text("sentence"))
    assert texts == ["good", None, None, "bad"]
    assert re.findall(r"no prediction for \S+, line (\d+): column 'sentence' is", capsys.readouterr().err) == ["2", "3"]
    path.write_text('{"sentence": ""}\n')
    with pytest.raises(UserError, match="line 1: column 'sentence' is empty"):
        read_each(read_rows(str(path)), Columns("sentence"), lambda row: row.text("sentence"))


def test_numbers_that_are_not_finite_are_null_in_json(tmp_path):
    row = {"score": math.nan, "prediction": [math.inf, 1.5], "probabilities": {"a": -math.inf, "b": 0.5}}
    write(str(tmp_path / "out.jsonl"), [row])

    def refuse(name):
        raise AssertionError(name)  # NaN and Infinity are no JSON

    found = json.loads((tmp_path / "out.jsonl").read_text(), parse_constant=refuse)
    assert found == {"score": None, "prediction": [None, 1.5], "probabilities": {"a": None, "b": 0.5}}


TEXTS = [f"Bafilon {'dolon ' * (number % 7)}sara." for number in range(11)]


@pytest.fixture
def command(corpus, tmp_path, monkeypatch):
    """The words of a command whose chunks have four rows, and the rows that each embedding has seen."""
    monkeypatch.setattr(predict, "BATCHES", 2)
    model, seen, embed = export(tmp_path / "model", corpus.vocabulary), [], Predictor.embed
    table = own_files.write(tmp_path / "new.csv", {"text": TEXTS})

    def counting(self, texts, batch_size):
        if len(seen) == 2:
            seen.clear()
            raise KeyboardInterrupt
        seen.append(list(texts))
        return embed(self, texts, batch_size)

    monkeypatch.setattr(Predictor, "embed", counting)
    return ["--run", str(model), "--embed", "--input", str(table), "--batch-size", "2"], seen


def test_a_pipe_gets_the_rows_as_they_are_made(command, capfdbinary):
    words, _ = command
    with pytest.raises(KeyboardInterrupt):
        predict.main([*words, "--out", "-"])
    lines = capfdbinary.readouterr().out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["text"], len(row["embedding"])) for row in rows] == [(text, 32) for text in TEXTS[:8]]


def test_rows_that_cannot_be_read_keep_their_place(monkeypatch):
    monkeypatch.setattr(predict, "BATCHES", 2)
    rows, double = [{"n": number} for number in range(5)], lambda some: [{"x": 2 * one} for one in some]
    chunks = list(answered(argparse.Namespace(batch_size=1), rows, [1, None, 3, None, 5], double))
    assert chunks == [[{"n": 0, "x": 2}, {"n": 1}], [{"n": 2, "x": 6}, {"n": 3}], [{"n": 4, "x": 10}]]


def test_only_one_command_makes_a_file(command, tmp_path, capsys):
    words, _ = command
    out = tmp_path / "out.jsonl"
    with locks.holding(locks.beside(out), out):
        assert predict.main([*words, "--out", str(out)]) == 2
    assert "another process is writing" in capsys.readouterr().err
