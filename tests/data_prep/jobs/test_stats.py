"""Compares the counts of `stats` with counts from the rows."""

import shutil
from collections import Counter
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2 as model_proto

from common.errors import UserError
from common.files.outputs import MARKER
from data_prep.__main__ import main
from data_prep.format import shard_manifest as manifests
from data_prep.format import shards
from data_prep.jobs import stats
from data_prep.text.vocabulary import Vocabulary
from tests.data_prep import corpora


@pytest.fixture(scope="module")
def rows(shard_directory: Path) -> list[shards.ShardRow]:
    return list(shards.open_shards(shard_directory))


@pytest.fixture(scope="module")
def total(shard_directory: Path) -> stats.Statistics:
    manifest = manifests.read_manifest(shard_directory)
    each = [stats.shard_statistics(shard_directory, file, manifest) for file in manifest.shards()]
    return stats.Statistics(**{name: sum(getattr(one, name) for one in each) for name in vars(each[0])})


def as_counter(histogram: np.ndarray) -> Counter[int]:
    return Counter({value: int(n) for value, n in enumerate(histogram) if n})


def test_histograms_are_those_of_the_rows(rows: list[shards.ShardRow], total: stats.Statistics) -> None:
    assert as_counter(total.piece_counts) == Counter(token for row in rows for token in row.tokens.tolist())
    assert as_counter(total.pairs_per_row) == Counter(len(row.documents) for row in rows)
    pairs_of_rows = [list(zip(*(part.tolist() for part in row.parts))) for row in rows]
    pairs = [pair for pairs in pairs_of_rows for pair in pairs]
    assert as_counter(total.pair_lengths) == Counter(map(sum, pairs))
    assert as_counter(total.row_positions) == Counter(
        sum(sum(pair) + (3 if pair[2] else 2) for pair in pairs) for pairs in pairs_of_rows
    )
    assert as_counter(total.cut) == Counter(
        10 * (lead + a) // (lead + a + b + trail) for lead, a, b, trail in pairs if b
    )


def test_the_table(
    shard_directory: Path, rows: list[shards.ShardRow], total: stats.Statistics, vocabulary: Vocabulary
) -> None:
    manifest = manifests.read_manifest(shard_directory)
    table = dict(stats.summary(manifest, total, vocabulary))
    tokens = [vocabulary.pieces[token] for row in rows for token in row.tokens.tolist()]
    words = sum(piece.startswith("▁") for piece in tokens)
    assert table["tokens"] == f"{len(tokens):,}"
    assert table["pieces a word"] == f"{len(tokens) / words:.3f}"
    assert table["unknown tokens"].startswith(f"{tokens.count('<unk>'):,} ")
    assert table["fill"] == f"{manifest.counts.fill:.2%}"
    most, count = Counter(tokens).most_common(1)[0]
    assert stats.frequent_pieces(total, vocabulary)[0] == (most, f"{count:,} ({count / len(tokens):.2%})")


def test_the_command_writes_plots(shard_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["stats", str(shard_directory), "--out", str(tmp_path / "plots")])
    assert "most frequent pieces" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {MARKER, *stats.PLOTS}
    for name in stats.PLOTS:
        image = matplotlib.image.imread(tmp_path / "plots" / name)  # (height, width, channels)
        assert image.shape[0] > 200
        assert image[..., :3].std() > 0.01  # something is drawn
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="--out"):
        main(["stats", str(shard_directory), "--out", str(tmp_path / "file")])


@pytest.mark.slow
def test_ranks_give_the_same_table(shard_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["stats", str(shard_directory), "--out", str(tmp_path)]
    main(arguments)
    assert corpora.run(["-m", "data_prep", *arguments], ranks=2).stdout == capsys.readouterr().out


def test_another_vocabulary_beside_the_shards(shard_directory: Path, tmp_path: Path) -> None:
    """It has as many bytes and another piece, as after a flipped bit; or the manifest has another."""
    changed = shutil.copytree(shard_directory, tmp_path / "shards")
    model = (changed / "spiece.model").read_bytes()
    proto = model_proto.ModelProto.FromString(model)
    piece = next(piece for piece in reversed(proto.pieces) if piece.piece.isascii())
    piece.piece = piece.piece[:-1] + "~"
    (changed / "spiece.model").write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="is not the vocabulary that the shards were made with"):
        main(["stats", str(changed)])
    (changed / "spiece.model").write_bytes(model)
    manifest = manifests.read_manifest(changed)
    manifest.vocabulary_size = 3000
    manifests.write_manifest(changed, manifest)
    with pytest.raises(UserError, match="is not the vocabulary that the shards were made with"):
        main(["show", str(changed)])
