"""Tables of every format: the same rows, and one line for every mistake."""

import io
import json

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import UserError
from pipeline.predict import write
from pipeline.tasks.files import reading, tables
from pipeline.tasks.files.rows import Columns, rows_of
from pipeline.tasks.files.tables import Table, from_dataset, read_table
from tests.pipeline.tasks import own_files

COLUMNS = {"text": ['He said "no", twice.', "a\ttab", "one,\ntwo", "é"], "label": ["x", "y", "x", "y"]}


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_rows(tmp_path, ending):
    table = read_table(own_files.write(tmp_path / f"train.{ending}", COLUMNS))
    assert list(table.columns) == ["text", "label"]
    assert [dict(row) for row in table.rows] == [dict(zip(COLUMNS, row)) for row in zip(*COLUMNS.values())]
    places = {"jsonl": (1, 2, 3, 4), "parquet": (0, 1, 2, 3)}
    assert tuple(table.numbers) == places.get(ending, (2, 3, 4, 6))  # the lines in which they begin


def test_places_of_other_files(tmp_path):
    (tmp_path / "gaps.csv").write_text("text,label\r\n\r\na,b\r\n")
    assert read_table(tmp_path / "gaps.csv").place(0).endswith("line 3")
    (tmp_path / "list.json").write_text('[{"text": "a"},\n {"text": "b"}]')
    assert read_table(tmp_path / "list.json").place(1).endswith("list.json, entry 1")


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.tsv", 'text\tlabel\n"I" am.\tx\n"b\ty\nc"\ty\n', ['"I" am.', '"b', 'c"']),  # no cell is quoted
        ("a.tsv", 'text\tlabel\r\n"say ""I"""\tx\r\n"b\tc"\ty\r\n"c\n"\ty\r\n', ['say "I"', "b\tc", "c\n"]),
        ("a.tsv", 'text\tlabel\nA\tx\n"B.\ty\nC."\ty\n', ["A", '"B.', 'C."']),  # a speech of two rows
        ("a.tsv", 'text\n"a\nb"\nc\n', ["a\nb", "c"]),
        ("a.tsv", 'text\tlabel\r"a b"\tx\rc\ty\r', ["a b", "c"]),
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


def parquet(names, *columns):
    file = io.BytesIO()
    pq.write_table(pa.table(list(columns), names=names), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\n", "a.csv holds no row"),
        ("a.conll", "", "a.conll holds no row"),
        ("a.conll", "\n \n", "a.conll holds no row"),
        ("a.csv", "text,text\nx,y\n", "line 1: two columns are called 'text'; rename one"),
        ("a.csv", "text,label\nx,y\nx\n", "line 3: 1 cells instead of the 2 of the header (text, label); correct the"),
        ("a.csv", 'text,label\nx,y\n"open,y\n', "line 3: unexpected end of data; write a quote inside"),
        ("a.tsv", 'text\tlabel\n"a" b\ty\nc\ty\n"d\n', "line 4: 1 cells instead of the 2"),
        ("a.jsonl", '{"text": "x"}\n{"text": \n', "line 2: broken JSON"),
        ("a.parquet", b"PAR1 no", "a.parquet is no readable Parquet file"),
        ("a.parquet", parquet(["text", "text"], ["a"], ["b"]), "a.parquet: two columns are called 'text'; rename one"),
        ("a.parquet", parquet(["text"], pa.array([], pa.string())), "a.parquet holds no row"),
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
    features = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    features = datasets.Features(features | {"ner_tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"]))})
    columns = {"text": ["a", "b"], "label": [1, -1], "ner_tags": [[0, 1], [1]]}
    rows = datasets.Dataset.from_dict(columns, features=features)
    table = from_dataset(rows, "name, split train", rows.column_names)
    assert [(row["label"], row["ner_tags"]) for row in table.rows] == [("pos", ["O", "B-X"]), (None, ["B-X"])]
    assert table.class_names == {"label": ("neg", "pos"), "ner_tags": ("O", "B-X")}
    assert table.place(1) == "name, split train, row 1"


def conll(directory, *lines):
    path = directory / "a.conll"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_table(path)


def test_comments_of_conll(tmp_path):
    for comment in (
        ("# id 5f domain=en",),
        ("# sent_id = 3", "# text = EU rejects"),
        ("#\thttp://a.org [2009-10-17]",),
        ("#begin document (a); part 000",),
        ("#sent_id = 3",),
        ("# 3",),
    ):
        table = conll(tmp_path, *comment, "EU B-ORG", "rejects O", "", *comment, "# O", "Peter B-PER", "", *comment)
        assert [row["tokens"] for row in table.rows] == [["EU", "rejects"], ["#", "Peter"]]
        assert [row["tags"] for row in table.rows] == [["B-ORG", "O"], ["O", "B-PER"]]
        assert table.numbers == [len(comment) + 1, 2 * len(comment) + 4]
    table = conll(tmp_path, "#tag B-X", "# O")
    assert table.rows == [{"tokens": ["#tag", "#"], "tags": ["B-X", "O"]}]


UD = """# sent_id = 1
# text = Im New York
1-2\tIm\t_\t_\t_\t_\t_\t_\t_\t_
1\tIn\tin\tADP\tAPPR\t_\t3\tcase\t_\t_
2\tdem\tder\tDET\tART\tCase=Dat\t3\tdet\t_\t_
3\tNew York\tNew York\tPROPN\tNE\t_\t0\troot\t_\tSpaceAfter=No
3.1\tist\tsein\tAUX\t_\t_\t_\t_\t_\t_

# sent_id = 2
1\t#\t#\tSYM\tXY\t_\t0\troot\t_\t_
"""


def test_conll_u(tmp_path):
    table = conll(tmp_path, UD)
    first, second = table.rows
    assert (first["tokens"], first["tags"]) == (["In", "dem", "New York"], ["ADP", "DET", "PROPN"])
    assert (first["xpos"], first["deprel"]) == (["APPR", "ART", "NE"], ["case", "det", "root"])
    assert (second["tokens"], second["tags"]) == (["#"], ["SYM"])
    assert table.numbers == [4, 10]


@pytest.mark.parametrize(
    ("lines", "width"),
    [
        (("1 Berlin B-LOC", "2 ist O", "", "1 Peter B-PER"), 3),  # counts
        (("0 Berlin B-LOC O", "1 ist O O"), 4),
        (UD.replace("\t", " ").replace("New York", "Bonn").split("\n"), 10),
        (("B-LOC Berlin", "O ist"), 2),  # the tag is first
        (("NOUN Haus", "VERB ist", "VERB war"), 2),
        (("Berlin B-LOC NE", "ist O VAFIN"), 3),  # two columns of tags
        (("Haus NOUN haus nn", "haus VERB hat v", "haus X hut x"), 4),
    ],
)
def test_columns_of_conll_that_are_not_clear_have_numbers_only(tmp_path, lines, width):
    table = conll(tmp_path, *lines)
    assert table.columns == tuple(str(number + 1) for number in range(width))
    of_first = next(line for line in lines if line and not line.startswith("#")).split()
    assert [table.rows[0][name][0] for name in table.columns] == of_first


def test_columns_of_conll_by_number(tmp_path):
    table = conll(tmp_path, "EU NNP I-NP B-ORG", "rejects VBZ I-VP O")
    assert table.columns == ("tokens", "tags")
    table = read_table(tmp_path / "a.conll", ("1", "2"))
    assert table.columns == ("1", "2", "3", "4")
    assert (table.rows[0]["1"], table.rows[0]["2"]) == (["EU", "rejects"], ["NNP", "VBZ"])


def strings(content, *offsets):
    """Strings of which the second is none."""
    offsets = pa.py_buffer(np.array([0, *offsets], np.int32).tobytes())
    return pa.StringArray.from_buffers(2, offsets, pa.py_buffer(content))


FAR_DATES = pa.array([0, 9_000_000], pa.int32()).cast(pa.date32())  # the second is beyond those of Python


@pytest.mark.parametrize("other", [strings(b"a\xff", 1, 2), FAR_DATES], ids=["texts", "dates"])
def test_parquet_is_checked_where_it_is_read(tmp_path, other):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "other": other}), path)
    table = read_table(path, ("text", None), only_these=True)  # nobody reads the other column
    assert (table.rows, table.columns) == ([{"text": "a"}, {"text": "b"}], ("text", "other"))
    with pytest.raises(UserError, match=r"a\.parquet is no readable Parquet file \(.*\); write it again"):
        read_table(path)


def test_the_decoded_size_of_parquet_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    monkeypatch.setattr(tables, "MAX_DECODED_BYTES", 50_000_000)
    pq.write_table(pa.table({"text": ["x" * 200_000] * 1000}), path)  # as a dictionary of one text
    assert path.stat().st_size < 20_000
    with pytest.raises(UserError, match=r"a\.parquet has more than 50,000,000 bytes of values or"):
        read_table(path)


@pytest.mark.parametrize(
    "text", [(b"a\xff", 1, 2), (b"ab", 2, 1), (b"ab", 1 << 30, 2)], ids=["bytes", "falling", "far"]
)
def test_a_data_set_is_checked_before_it_is_read(tmp_path, text):
    rows = datasets.Dataset(pa.table({"text": strings(*text), "label": [0, 1]}), fingerprint="made")
    with pytest.raises(UserError, match="the set is damaged"):
        tables.from_dataset(rows, "the set", ("text", "label"))
    assert [row["label"] for row in tables.from_dataset(rows, "the set", ("label",)).rows] == [0, 1]


def test_half_an_emoji_in_a_row_of_python_is_no_traceback():
    table = Table("rows", ("text",), [{"text": "half \ud83d"}, {"text": "whole \ud83d\ude00"}], [0, 1])
    texts = [row.text("text") for row in rows_of(table, Columns("text"), "ignored")]
    assert texts == ["half \ufffd", "whole \U0001f600"]


def test_a_saved_data_set_of_tensors_is_read_by_its_values(tmp_path):
    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}).with_format("torch")
    datasets.DatasetDict(train=rows).save_to_disk(str(tmp_path / "set"))
    rows.save_to_disk(str(tmp_path / "one"))
    for name in ("set", "one"):
        found = reading.open_dataset(str(tmp_path / name), lambda subsets: None, "")["train"]
        assert tables.from_dataset(found, "the set", ("text", "label")).rows == [
            {"text": "a", "label": 0}, {"text": "b", "label": 1},
        ]  # fmt: skip
