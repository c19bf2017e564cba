"""`show` prints rows as they are stored, and `stats` counts that are those of the rows."""

import re
from pathlib import Path

import numpy as np
import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.format.pairs import Parts
from data_prep.format.shards import ShardRows, open_shards
from data_prep.jobs.show_rows import describe_row
from data_prep.text.normalize import normalize
from data_prep.text.vocabulary import Vocabulary
from tests.data_prep import corpora


def test_a_row_by_hand(vocabulary: Vocabulary) -> None:
    first, second, third = corpora.make_sentences(3, seed=8)
    a, b, lonely = vocabulary.encode([normalize(s)[:40].strip() for s in (first, second, third)])
    row = ShardRows(
        np.array(a + b + lonely, np.uint16),
        Parts(np.array([2, 0]), np.array([len(a) - 2, len(lonely)]), np.array([len(b) - 1, 0]), np.array([1, 0])),
        np.array([4, 17]),
        np.array([2]),
    )
    used = len(a) + len(b) + 3 + len(lonely) + 2
    lines = [line for text in describe_row(9, row, 128, vocabulary) for line in text.split("\n")]
    assert lines[0] == f"row 9: 2 pairs, {used} of 128 positions"
    assert lines[1] == f"  pair 0, document 4: A {len(a)} tokens, B {len(b)} tokens"
    for name, ids in (("lead ", a[:2]), ("A    ", a[2:]), ("B    ", b[:-1]), ("trail", b[-1:])):
        place = lines.index(f"    {name} {vocabulary.decode(ids)}")
        assert lines[place + 1].split() == [vocabulary.pieces[i] for i in ids]
    assert f"  pair 1, document 17: A {len(lonely)} tokens, no B" in lines


def test_the_command(shard_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(open_shards(shard_directory))
    for words, rows in ((["-n", "2"], [0, count // 2]), (["-n", "3", "--row", str(count - 2)], [count - 2, count - 1])):
        main(["show", str(shard_directory), *words])
        out = capsys.readouterr().out
        assert [line.split(":")[0] for line in out.splitlines() if line.startswith("row")] == [f"row {n}" for n in rows]
    assert max(map(len, out.splitlines())) <= 110
    for options in (["-n", "0"], ["--row", "-1"], ["--row", "1000000"]):
        with pytest.raises(UserError, match=options[0]):
            main(["show", str(shard_directory), *options])


def test_the_sentences_of_documents_are_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ['{"title": "Dr. No", "text": "It is by Dr. No. He was born in 1962.\\nIt ends."}', '{"text": "Two."}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    words = ["--source", "jsonl", "--input", str(tmp_path / "a.jsonl"), "--title-field", "title"]
    main(["extract", *words, "--out", str(tmp_path / "documents")])
    capsys.readouterr()
    main(["show", str(tmp_path / "documents"), "--sentences", "-n", "1"])
    assert capsys.readouterr().out.splitlines() == [
        "document 0, 3 sentences: Dr. No",
        *("    It is by Dr. No.", "    He was born in 1962.", "    It ends.", ""),
    ]
    with pytest.raises(UserError, match="--sentences shows the first documents"):
        main(["show", str(tmp_path / "documents"), "--sentences", "--row", "3"])


def test_the_counts_are_those_of_the_rows(shard_directory, vocabulary, capsys):
    main(["stats", str(shard_directory)])
    lines = capsys.readouterr().out.splitlines()
    found = dict(re.split("  +", line.strip(), maxsplit=1) for line in lines[1:])
    rows = list(open_shards(shard_directory))
    tokens = [vocabulary.pieces[token] for row in rows for token in row.tokens.tolist()]
    pairs = [sum(pair) for row in rows for pair in zip(*(part.tolist() for part in row.parts))]
    assert found["tokens"] == f"{len(tokens):,}"
    assert found["unknown tokens"].startswith(f"{tokens.count('<unk>'):,} ")
    assert found["pairs"] == f"{len(pairs):,} of {sum(pairs) / len(pairs):.1f} tokens on average"
    assert found["pairs a row"].startswith(f"{len(pairs) / len(rows):.2f}, ")
    used = sum(int(row.parts.positions().sum()) for row in rows)
    assert found["fill"] == f"{used / (64 * len(rows)):.2%}"
