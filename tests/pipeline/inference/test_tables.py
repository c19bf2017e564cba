"""The columns that prediction reads: those of the run, and in their place those that the command line names."""

import json

import pytest

from common.errors import UserError
from pipeline import predict
from pipeline.inference import tables
from pipeline.inference.tables import columns_for
from pipeline.tasks.files.tables import read_table
from pipeline.tasks.registry import TASKS


def columns(task, *words):
    args = predict.parser().parse_all(["--run", "run", *words])
    return columns_for(TASKS[task], args.text_column, args.second_text_column, args.choice_columns)


@pytest.mark.parametrize("task", ["sst2", "rte", "race"])
def test_without_flags_they_are_those_of_the_run(task):
    assert columns(task) == TASKS[task].input_columns


def test_flags_replace_them():
    assert (columns("rte", "--text-column", "a").text, columns("rte", "--second-text-column", "b").second_text) == (
        "a",
        "b",
    )
    assert columns("race", "--choice-columns", "c").choices == ("c",)
    for words, message in (
        (["--second-text-column", "b"], "the run was trained on one text"),
        (["--choice-columns", "c"], "the run was not trained on questions with choices"),
    ):
        with pytest.raises(UserError, match=message):
            columns("sst2", *words)
    with pytest.raises(UserError, match="--choice-columns names 2 columns, and the run has 4 choices"):
        columns("race", "--choice-columns", "c", "d")


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
def test_every_format_holds_the_same_rows(tmp_path, ending):
    rows = [{"text": 'a "b",\t', "probabilities": {"x": 0.25, "é": 0.75}}, {"text": "c", "probabilities": {"x": 1.0}}]
    tables.write(str(tmp_path / f"out.{ending}"), rows)
    found = read_table(tmp_path / f"out.{ending}").rows
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    given = [row["probabilities"] for row in found]
    shares = [json.loads(cell) for cell in given] if ending in ("csv", "tsv") else given
    assert shares[0] == rows[0]["probabilities"]
