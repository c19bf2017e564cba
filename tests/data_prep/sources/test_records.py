"""Records: every format gives the same documents, with any work units, and a bad line loses only itself.

A local dataset directory is read in the same way as a dataset of the hub.
"""

import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.corpus.documents import Document
from data_prep.sources import Skipped, Source
from data_prep.sources.records import Condition, Fields, Hub, Records
from tests.data_prep.corpora import read_all

FIELDS = Fields(text="body", id="key", title="name")
RECORDS: list[dict[str, Any]] = [
    {"key": 1, "name": "A", "body": "It is one.\r\n\r\n  Two  words. "},
    {"key": "b", "name": None, "body": "Ünïcode \u2028 breaks.", "more": [1]},
    {"key": "c", "name": "C", "body": None},
    {"key": "d", "name": "D", "body": " \n "},
]


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstd, ".xz": lzma.compress, ".bz2": bz2.compress}


def read(path: Path, fields: Fields = FIELDS, unit_bytes: int = 1 << 20) -> list[Document | Skipped]:
    return read_all(Records([path], fields, unit_bytes))


@pytest.mark.parametrize("suffix", PACKERS)
def test_lines_in_every_wrapping(tmp_path: Path, suffix: str) -> None:
    lines = [json.dumps(record) + "\n" for record in RECORDS]
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(PACKERS[suffix](("\n" + "".join(lines)).encode()))
    third = 1 + len(lines[0]) + len(lines[1])
    assert read(path) == [
        Document("1", "A", "It is one.\nTwo words."),
        Document("b", "", "Ünïcode\nbreaks."),
        Skipped(f"a.jsonl{suffix}:{third}", "no text"),
        Skipped(f"a.jsonl{suffix}:{third + len(lines[2])}", "no text"),
    ]


def test_parquet(tmp_path: Path) -> None:
    rows = [{"key": str(i), "name": f"T{i}", "body": f"It is {i}."} for i in range(1000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=300)
    expected = [Document(row["key"], row["name"], row["body"]) for row in rows]
    assert read(path) == expected
    assert len(Records([path], FIELDS, unit_bytes=1).units) == 4
    assert read(path, unit_bytes=1) == expected
    without_id = read(path, Fields("body"), 1)
    assert without_id[0] == Document("a.parquet:0:0", "", "It is 0.")
    assert len({item.id for item in without_id if isinstance(item, Document)}) == 1000


@settings(max_examples=40)
@given(texts=st.lists(st.text(min_size=1), max_size=12), unit_bytes=st.integers(1, 200), newline=st.booleans())
def test_every_line_belongs_to_one_unit(tmp_path_factory, texts, unit_bytes, newline):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    lines = [json.dumps({"text": f"{text} end"}, ensure_ascii=len(text) % 2 == 0) for text in texts]
    path.write_text("\n".join(lines) + ("\n" if newline else ""), encoding="utf-8", errors="surrogatepass")
    assert read(path, Fields(), unit_bytes) == read(path, Fields(), 1 << 20)
    assert len(read(path, Fields(), unit_bytes)) == len(texts)


def test_a_sentence_a_record(tmp_path: Path) -> None:
    """One sentence in each record, like the hub's bookcorpus."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"It is {n}." if n != 3 else None}) + "\n" for n in range(8)))
    alone = [item.id for item in read(path, Fields()) if isinstance(item, Document)]
    texts = {0: "It is 0.\nIt is 1.\nIt is 2.", 3: "It is 4.\nIt is 5.\nIt is 6.", 6: "It is 7."}
    *found, skipped = sorted(read(path, Fields(per_document=3)), key=lambda item: isinstance(item, Skipped))
    assert found == [Document(alone[number], "", text) for number, text in texts.items()]
    assert isinstance(skipped, Skipped)


SCORED = [
    {"text": "one", "score": 3.5, "lang": "en", "date": "2023-12-31"},
    {"text": "two", "score": 10, "lang": "de", "date": "2024-01-01"},
    {"text": "three", "score": None, "lang": "en", "date": "2024-02-01"},
    {"text": "four", "score": -2e1, "lang": "en", "date": "2024-10-01"},
]


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        *(("score>=3", "n/a", False), ("score>=3", [], False), ("score>=3", "3.5", True), ("score>=3", 10**400, False)),
        *(("ok==true", True, True), ("ok==1", True, False), ("lang==nan", "nan", True), ("lang==nan", "inf", False)),
        ("score>=3", "inf", False),
    ],
)
def test_a_number_is_asked_of_numbers_only_and_true_is_that_of_json(condition: str, value: object, holds: bool) -> None:
    parsed = Condition.parse(condition)
    assert parsed.holds({parsed.field: value}) is holds


def test_a_condition_of_another_form_is_refused() -> None:
    with pytest.raises(UserError, match="give FIELD>=X"):
        Condition.parse("score>3")
    assert Condition.parse("id==YWJjZA==").value == "YWJjZA=="
    for two in ("score>=3 and lang==en", "score===3"):
        with pytest.raises(UserError, match="holds two conditions; give each in quotation marks"):
            Condition.parse(two)


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        (["score>=3"], [0, 1]),
        (["score <= 3.5"], [0, 3]),
        (["score==10.0"], [1]),
        (["lang==en"], [0, 2, 3]),
        (["date>=2024-01-01", "lang==en"], [2, 3]),
        (["date<=2023-12-31"], [0]),
        (["score>=x"], []),
    ],
)
@pytest.mark.parametrize("form", ["jsonl", "parquet", "hub"])
def test_where_keeps_what_satisfies_it(tmp_path: Path, form: str, conditions: list[str], kept: list[int]) -> None:
    fields = Fields(where=tuple(map(Condition.parse, conditions)))
    lines, table = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    lines.write_text("".join(json.dumps(record) + "\n" for record in SCORED))
    pq.write_table(pa.Table.from_pylist(SCORED), table)
    source: Source = Records([lines if form == "jsonl" else table], fields, 1 << 20)
    if form == "hub":
        lines.unlink()
        source = Hub([str(tmp_path)], None, "train", fields)
    items = read_all(source)
    assert [item.text for item in items if isinstance(item, Document)] == [SCORED[number]["text"] for number in kept]
    skipped = [item.reason for item in items if isinstance(item, Skipped)]
    assert skipped == ["left out by --where"] * (len(SCORED) - len(kept))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "cut', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"body": "other"}', "no field of text"),
        ('"a string"', "no field of text"),
        ('{"text": 5}', "no field of text"),
    ],
)
def test_a_bad_line_is_skipped_but_for_the_first(tmp_path: Path, suffix: str, line: str, reason: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(PACKERS[suffix](f'{{"text": "é"}}\n{line}\n{{"text": "It is so."}}\n'.encode()))
    for unit_bytes in (8, 1 << 20):
        assert read(path, Fields(), unit_bytes) == [
            Document(f"a.jsonl{suffix}:0", "", "é"),
            Skipped(f"a.jsonl{suffix}:15", reason),
            Document(f"a.jsonl{suffix}:{16 + len(line)}", "", "It is so."),
        ]
    path.write_bytes(PACKERS[suffix](f'\n{line}\n{{"text": "é"}}\n'.encode()))
    is_of_field = "field" in reason and line[0] == "{"
    fault = "(no field|field) 'text'.*; choose" if is_of_field else f"{reason}; check --input, --source and"
    with pytest.raises(UserError, match=rf"a\.jsonl{suffix}, line 2: {fault} --text-field"):
        Records([path], Fields(), 1 << 20)


@pytest.mark.parametrize("suffix", [suffix for suffix in PACKERS if suffix])
def test_a_damaged_compressed_file_gives_no_text(tmp_path: Path, suffix: str) -> None:
    """Even of text before the place where a decompressor sees the damage nobody knows that it is right."""
    path = tmp_path / f"a.jsonl{suffix}"
    packed = PACKERS[suffix](b"".join(b'{"text": "It is %d."}\n' % n**3 for n in range(60_000)))
    place, lost = len(packed) * 3 // 4, [Skipped(path.name, "damaged")]
    damage = [packed[:-9], packed[:place] + bytes(20) + packed[place + 20 :]]
    for damaged in damage[: 1 if suffix == ".zst" else 2]:  # pyarrow writes no checksum into .zst
        path.write_bytes(damaged)
        assert read(path, Fields()) == lost
    path.write_bytes(packed[:9])
    with pytest.raises(UserError, match=rf"a\.jsonl{suffix}, line 1: damaged"):
        Records([path], Fields(), 1 << 20)


SCORES = Fields(where=(Condition.parse("scores>=3"),))


@pytest.mark.parametrize(
    ("content", "fields", "fault"),
    [
        (b"PAR0", Fields(), r"a\.parquet is not a Parquet file \([^\\]*\); check --input$"),
        ({"page": ["a"]}, Fields(), "0 columns called 'text'; choose --text-field among page"),
        ({"text": ["a"], "page": ["b"]}, Fields(id="no"), "columns called 'no'; choose --id-field among text, page"),
        ({"text": ["a"], "page": ["b"]}, Fields(title="no"), "columns called 'no'; choose --title-field among text"),
        ({"text": ["a"], "page": ["b"]}, SCORES, "columns called 'scores'; choose --where among text, page"),
        ('{"text": "a", "score": 1}', SCORES, "no field 'scores'; choose --where among text, score$"),
        ({"text": [1, 2]}, Fields(), r"a\.parquet: column 'text' holds int64, not text"),
        ('{"title": "a"}', FIELDS, r"a\.jsonl, line 1: no field 'body'; choose --text-field among title$"),
        ('{"body": 5, "key": "b"}', FIELDS, "line 1: field 'body' holds no text; choose --text-field among body, key$"),
        ('{"body": "a"}', FIELDS, "line 1: no field 'key'; choose --id-field among body$"),
        ("{}", FIELDS, "line 1: no field 'body'; choose --text-field among other data$"),
    ],
)
def test_what_cannot_be_read_and_the_fields_that_there_are_are_named(tmp_path, content, fields, fault):
    if isinstance(content, str):
        (tmp_path / "a.jsonl").write_text(content)
    elif isinstance(content, bytes):
        (tmp_path / "a.parquet").write_bytes(content)
    else:
        pq.write_table(pa.table(content), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=fault):
        Records([tmp_path], fields, 1)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_every_kind_of_text_column_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"text": pa.array(["It is so.", None]).cast(kind)}), tmp_path / "a.parquet")
    assert read(tmp_path, Fields()) == [Document("a.parquet:0:0", "", "It is so."), Skipped("a.parquet:0:1", "no text")]


def test_an_error_of_the_disk_is_no_damage(tmp_path: Path) -> None:
    """An error of the system may be temporary, so it ends the job and skips no record."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "It is so."}\n')
    source = Records([path], Fields(), 1 << 20)
    path.unlink()
    path.symlink_to("/proc/self/mem")  # whose first byte cannot be read
    with pytest.raises(OSError, match="Input/output error"):
        read_all(source)


def test_a_damaged_page_costs_its_row_group(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"It is {n}." for n in range(3000)]})
    pq.write_table(table, path, compression="zstd", row_group_size=1000)
    column = pq.read_metadata(path).row_group(1).column(0)
    content = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + 300] = bytes(300)
    path.write_bytes(content)
    items = read(path, Fields())
    assert [item for item in items if isinstance(item, Skipped)] == [Skipped("a.parquet:1:0", "damaged")]
    assert [item.text for item in items if isinstance(item, Document)] == [
        f"It is {n}." for n in [*range(1000), *range(2000, 3000)]
    ]


def test_half_characters_are_joined_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(r'{"text": "\ud83d\ude00 and \ud83d alone", "id": "\udc00"}')
    assert read(path, Fields(id="id")) == [Document("\ufffd", "", "\U0001f600 and \ufffd alone")]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_record_without_end_is_skipped_and_never_held(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("data_prep.sources.opening.MAX_TEXT_BYTES", 1000)
    short, long = b'{"text": "It is short."}\n', b'{"text": "' + b"a" * 5_000_000 + b'"}\n'
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(PACKERS[suffix](short + long + short))
    for unit_bytes in (1 << 20, 1 << 24):
        source = Records([path], Fields(), unit_bytes)
        found = read_all(source)
        assert [type(item) for item in found] == [Document, Skipped, Document]
        assert found[1] == Skipped(f"a.jsonl{suffix}:{len(short)}", "too long")
        assert source.consumed == len(short + long + short)
    path.write_bytes(PACKERS[suffix](long))
    with pytest.raises(UserError, match="line 1: too long"):
        Records([path], Fields(), 1 << 24)


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three training files and one of validation."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    directory = tmp_path / "dataset"
    (directory / "data").mkdir(parents=True)
    for name, count in (("train-0", 3), ("train-1", 2), ("train-2", 1), ("validation-0", 1)):
        rows = [{"page": f"{name}/{row}", "text": f"It is {name} {row}.\n\nSo."} for row in range(count)]
        pq.write_table(pa.Table.from_pylist(rows), directory / "data" / f"{name}.parquet")
    return directory


def ids_of(source: Hub) -> list[str]:
    return [item.id for item in read_all(source) if isinstance(item, Document)]


def test_a_local_dataset(dataset: Path) -> None:
    source = Hub([str(dataset)], None, "train", Fields(id="page"))
    assert len(source.units) == 3  # its own files are the units, so that every rank streams others
    assert ids_of(source) == ["train-0/0", "train-0/1", "train-0/2", "train-1/0", "train-1/1", "train-2/0"]
    first = next(source.read(source.units[0]))
    assert first == Document("train-0/0", "", "It is train-0 0.\nSo.")
    assert ids_of(Hub([str(dataset)], None, "validation", Fields(id="page"))) == ["validation-0/0"]
    by_place = ids_of(Hub([f"{dataset}/../dataset/"], None, "train", Fields(per_document=2)))
    assert by_place == ["dataset:0:0", "dataset:0:2", "dataset:1:0", "dataset:2:0"]  # a shard is cut by itself


def test_a_single_split_that_was_saved_is_read(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"text": ["It is one.", "It is two."]}).save_to_disk(tmp_path / "saved")
    assert ids_of(Hub([str(tmp_path / "saved")], None, "train", Fields())) == ["saved:0:0", "saved:0:1"]


def test_what_cannot_be_opened(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    (tmp_path / "a.jsonl").touch()
    for place, split, fields, fault in (
        (tmp_path / "none", "train", Fields(), r"cannot read the dataset '.*none'.*check --input"),
        (tmp_path / "a.jsonl", "train", Fields(), "is a file, not a dataset; read it by --source jsonl"),
        (dataset, "tests", Fields(), "Bad split: tests"),
        (dataset, "train", SCORES, "0 columns called 'scores'; choose --where among page, text"),
        (dataset, "train", Fields(text="body"), "0 columns called 'body'; choose --text-field among page, text"),
    ):
        with pytest.raises(UserError, match=fault):
            Hub([str(place)], None, split, fields)
    source = Hub([str(dataset)], None, "train", Fields(id="page"))
    path = dataset / "data" / "train-1.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"cannot read the dataset '.*dataset': .*; check --input"):
        ids_of(source)
