"""Tables of every format: the same rows, and one line for every mistake."""

import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import UserError
from pipeline.finetuning.predict_command import write
from pipeline.tasks.files.tables import from_dataset, read_table
from tests.pipeline.tasks import own_files

COLUMNS = {"text": ['He said "no", twice.', "a\ttab", "one,\ntwo", "é"], "label": ["x", "y", "x", "y"]}


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_rows(tmp_path, ending):
    table = read_table(own_files.write(tmp_path / f"train.{ending}", COLUMNS))
    assert list(table.columns) == ["text", "label"]
    assert [dict(row) for row in table.rows] == [dict(zip(COLUMNS, row)) for row in zip(*COLUMNS.values())]


def test_places_are_the_lines_in_which_rows_begin(tmp_path):
    table = read_table(own_files.write(tmp_path / "train.csv", COLUMNS))
    assert [table.place(index).rpartition(", ")[2] for index in range(4)] == ["line 2", "line 3", "line 4", "line 6"]
    (tmp_path / "gaps.csv").write_text("text,label\r\n\r\na,b\r\n")
    assert read_table(tmp_path / "gaps.csv").place(0).endswith("line 3")
    (tmp_path / "list.json").write_text('[{"text": "a"},\n {"text": "b"}]')
    assert read_table(tmp_path / "list.json").place(1).endswith("list.json, entry 1")


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.tsv", 'text\tlabel\n"I" am.\tx\n"b\ty\nc"\ty\n', ['"I" am.', '"b', 'c"']),  # no cell is quoted
        ("a.tsv", 'text\tlabel\r\n"say ""I"""\tx\r\n"b\tc"\ty\r\n"c\n"\ty\r\n', ['say "I"', "b\tc", "c\n"]),
        ("a.tsv", "text\tlabel\na\u2028\x85b\tx\n", ["a\u2028\x85b"]),
        ("a.csv", '\ufefftext;label\n"a;b";x\nc,d;y\n', ["a;b", "c,d"]),
        ("a.csv", '"text, or not";label;text\na;x;b\n', ["b"]),
        ("a.csv", "label|text\nx|a,b\ny|c\n", ["a,b", "c"]),
    ],
)
def test_separators_and_quotes_are_found_out(tmp_path, name, content, text):
    (tmp_path / name).write_text(content, newline="", encoding="utf-8")
    assert [row["text"] for row in read_table(tmp_path / name).rows] == text


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_a_lone_surrogate_is_replaced_in_every_value(tmp_path, ending):
    rows = [{"text": "half \ud83d", "la\ude00bel": ["\ud83d", "\U0001f600", 1.5, None]}, {"text": "\\ud83d"}]
    content = json.dumps(rows) if ending == "json" else "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / f"a.{ending}").write_text(content)
    table = read_table(tmp_path / f"a.{ending}")
    wanted = [{"text": "half \ufffd", "la\ufffdbel": ["\ufffd", "\U0001f600", 1.5, None]}, {"text": "\\ud83d"}]
    assert (list(table.rows), table.columns) == (wanted, ("text", "la\ufffdbel"))
    write(str(tmp_path / "out.jsonl"), list(table.rows))  # in UTF-8


def test_conll(tmp_path):
    (tmp_path / "a.conll").write_text("-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\nPeter NNP B-PER\n")
    table = read_table(tmp_path / "a.conll")
    assert table.rows == [
        {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
        {"tokens": ["Peter"], "tags": ["B-PER"]},
    ]
    assert table.place(1).endswith("line 7")
    (tmp_path / "b.conll").write_text("EU\nrejects\n")
    assert read_table(tmp_path / "b.conll").rows == [{"tokens": ["EU", "rejects"]}]
    (tmp_path / "c.conll").write_text("10\xa0000 B-NUM\r\nEuro\tO\r\n\r\n", encoding="utf-8")
    assert read_table(tmp_path / "c.conll").rows == [{"tokens": ["10\xa0000", "Euro"], "tags": ["B-NUM", "O"]}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\n", "a.csv holds no row"),
        ("a.csv", "text,text\nx,y\n", "line 1: two columns are called 'text'; rename one"),
        ("a.csv", "text,label\nx,y\nx\n", "line 3: 1 cells instead of the 2 of the header (text, label); correct the"),
        ("a.csv", 'text,label\nx,y\n"open,y\n', "line 3: unexpected end of data; write a quote inside"),
        ("a.tsv", 'text\tlabel\n"a" b\ty\nc\ty\n"d\n', "line 4: 1 cells instead of the 2"),
        ("a.jsonl", '{"text": "x"}\n{"text": \n', "line 2: broken JSON"),
        ("a.parquet", b"PAR1 no", "a.parquet is no readable Parquet file"),
        ("a.txt", "x", "a.txt has none of the endings .csv, .tsv, .jsonl"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        read_table(path)
    assert message in str(error.value).replace("\\\\", "\\")


def test_a_data_set_with_named_classes():
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["neg", "pos"]),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"])),
        }
    )
    rows = datasets.Dataset.from_dict(
        {"text": ["a", "b"], "label": [1, -1], "ner_tags": [[0, 1], [1]]}, features=features
    )
    table = from_dataset(rows, "name, split train")
    assert [(row["label"], row["ner_tags"]) for row in table.rows] == [("pos", ["O", "B-X"]), (None, ["B-X"])]
    assert table.class_names == {"label": ("neg", "pos"), "ner_tags": ("O", "B-X")}
    assert table.place(1) == "name, split train, row 1"


def test_two_columns_of_one_name_in_parquet(tmp_path):
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: two columns are called 'text'; rename one"):
        read_table(tmp_path / "a.parquet")
