"""Compares the counts of `stats` with counts from the rows."""

from collections import Counter
from pathlib import Path

import pytest

from data_prep.__main__ import main
from data_prep.format import shards
from data_prep.text.vocabulary import Vocabulary
from tests.data_prep import corpora


@pytest.mark.slow
def test_the_table_and_that_ranks_give_the_same(
    shard_directory: Path, vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["stats", str(shard_directory)])
    out = capsys.readouterr().out
    assert corpora.run(["-m", "data_prep", "stats", shard_directory], ranks=2).stdout == out
    table = dict(line.strip().split("  ", 1) for line in out.splitlines() if line.startswith("  "))
    table = {name: value.strip() for name, value in table.items()}
    rows = list(shards.open_shards(shard_directory))
    tokens = [vocabulary.pieces[token] for row in rows for token in row.tokens.tolist()]
    pairs = [sum(pair) for row in rows for pair in zip(*(part.tolist() for part in row.parts))]
    assert table["tokens"] == f"{len(tokens):,}"
    assert table["pieces a word"] == f"{len(tokens) / sum(piece.startswith('▁') for piece in tokens):.3f}"
    assert table["unknown tokens"].startswith(f"{tokens.count('<unk>'):,} ")
    assert table["pieces never used"] == f"{len(set(vocabulary.pieces) - set(tokens))} of 400"
    assert table["pairs"] == f"{len(pairs):,} of {sum(pairs) / len(pairs):.1f} tokens on average"
    assert table["pairs a row"].startswith(f"{len(pairs) / len(rows):.2f}, ")
    used = sum(int(row.parts.positions().sum()) for row in rows)
    assert table["fill"] == f"{used / (64 * len(rows)):.2%}"
    most, count = Counter(tokens).most_common(1)[0]
    assert table[most] == f"{count:,} ({count / len(tokens):.2%})"
