"""A set of four billion tokens: opened and read in the middle of the third epoch without memory to speak of.

Its 200 shards are links to one file, which saves disk space. The reader still opens and maps 200 files.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

from data_prep.format.pairs import Parts
from data_prep.format.shard_manifest import ShardCounts, ShardManifest, shard_name, write_manifest
from data_prep.format.shards import ShardRows, write_shard
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import open_mixture
from pipeline.data.sampler import step_positions
from tests.pipeline.conftest import REPOSITORY

LENGTH, SHARDS, VOCABULARY, RANKS = 512, 200, 30_000, 4096
TOKENS_A_ROW = LENGTH - 3  # one pair a row, as long as a row can hold
ROWS = 4_000_000_000 // SHARDS // TOKENS_A_ROW  # of a shard


def make_set(directory: Path) -> None:
    lengths = np.full(ROWS, TOKENS_A_ROW)
    half, none = lengths // 2, np.zeros_like(lengths)
    tokens = np.random.default_rng(0).integers(5, VOCABULARY, ROWS * TOKENS_A_ROW, dtype=np.uint16)
    parts = Parts(none, half, lengths - half, none)
    made = ShardRows(tokens, parts, np.arange(ROWS), np.ones(ROWS, np.int64))
    first = write_shard(directory / shard_name(0), made)
    for index in range(1, SHARDS):
        os.link(directory / shard_name(0), directory / shard_name(index))
    rows = ROWS * SHARDS
    manifest = ShardManifest(
        vocabulary_sha256="", vocabulary_size=VOCABULARY, normalization="", max_seq_length=LENGTH, seed=0,
        short_seq_prob=0.0, min_tokens=0, pack=True, split="train", documents_digest="", sources=[],
        counts=ShardCounts(documents=ROWS, pairs=rows, tokens=rows * TOKENS_A_ROW, rows=rows, max_pairs_in_row=1),
        files=[replace(first, name=shard_name(index)) for index in range(SHARDS)],
    )  # fmt: skip
    write_manifest(directory, manifest)


def own_bytes() -> int:
    """Bytes of memory of this process, without pages of mapped files, which the system frees when it needs memory."""
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared


def seek(directory: Path) -> None:
    """Reads the first micro-batch of the last rank in the third epoch; prints the rows and the growth of the memory."""
    before = own_bytes()
    mixture = open_mixture([directory], [1], np.zeros(VOCABULARY, bool), "sop", seed=0, masking=MaskingSettings())
    step = int(2.5 * mixture.rows) // RANKS
    batch = mixture.read(*step_positions(step, RANKS - 1, RANKS, 1, RANKS))
    assert (batch.input_ids != 0).all()
    print(mixture.rows, own_bytes() - before)


def test_four_billion_tokens_take_no_memory_to_speak_of(tmp_path):
    make_set(tmp_path)
    command = [sys.executable, "-m", "tests.pipeline.data.test_seek", str(tmp_path)]  # nothing else has used its memory
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    rows, grown = map(int, ended.stdout.split())
    assert rows * TOKENS_A_ROW > 3.99e9
    # A list of the rows' order alone would be 63 MB, the tokens 8 GB; what there is are imports and buffers.
    assert grown < 50e6


if __name__ == "__main__":
    seek(Path(sys.argv[1]))
