"""The columns that prediction reads: those of the run, and in their place those that the command line names."""

import json

import pytest

from common.errors import UserError
from pipeline import predict
from pipeline.predict import columns_for, write
from pipeline.tasks.files.rows import Columns
from pipeline.tasks.files.tables import read_table
from pipeline.tasks.registry import TASKS


def columns(task, *words):
    args = predict.parser().parse_all(["--run", "run", *words])
    return columns_for(TASKS[task], args)


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
    write(tmp_path / f"out.{ending}", rows)
    found = read_table(tmp_path / f"out.{ending}").rows
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    given = [row["probabilities"] for row in found]
    shares = [json.loads(cell) for cell in given] if ending in ("csv", "tsv") else given
    assert shares[0] == rows[0]["probabilities"]
