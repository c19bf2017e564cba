"""Measures seconds and memory to open a set of 4 billion tokens in the middle of training.

    python -m benchmarks.seek [--tokens 4000000000] [--ranks 4096]

The set is made in a temporary directory. Its 200 shards are links to one file, which saves disk space; the program
still opens and maps 200 files of different rows. A new process opens the set, finds the rows of the last rank's batch
in the middle of the third epoch, and reads them. The command prints its seconds and the growth of its memory.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

from common.command_line import Parser, entry_point
from data_prep.format.pairs import Parts
from data_prep.format.shard_manifest import ShardCounts, ShardManifest, shard_name, write_manifest
from data_prep.format.shards import write_shard
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import open_mixture, training_step

LENGTH, SHARDS, VOCABULARY = 512, 200, 30_000
TOKENS_A_ROW = LENGTH - 3  # one pair a row, as long as a row can hold


def make_set(directory: Path, tokens: int) -> None:
    """Writes a shard set of about `tokens` random tokens."""
    rows = tokens // SHARDS // TOKENS_A_ROW
    lengths = np.full(rows, TOKENS_A_ROW)
    half = lengths // 2
    none = np.zeros_like(lengths)
    drawn = np.random.default_rng(0).integers(5, VOCABULARY, rows * TOKENS_A_ROW, dtype=np.uint16)
    parts = Parts(none, half, lengths - half, none)
    first = write_shard(directory / shard_name(0), drawn, lengths, parts, np.arange(rows), np.ones(rows, np.int64))
    for index in range(1, SHARDS):
        os.link(directory / shard_name(0), directory / shard_name(index))
    counts = ShardCounts(
        documents=rows,
        pairs=rows * SHARDS,
        tokens=rows * SHARDS * TOKENS_A_ROW,
        rows=rows * SHARDS,
        max_pairs_in_row=1,
    )
    manifest = ShardManifest(
        vocabulary_sha256="", vocabulary_size=VOCABULARY, normalization="", max_seq_length=LENGTH, seed=0,
        short_seq_prob=0.0, min_tokens=0, pack=True, split="train", documents_digest="", sources=[], counts=counts,
        files=[replace(first, name=shard_name(index)) for index in range(SHARDS)],
    )  # fmt: skip
    write_manifest(directory, manifest)


def _own_bytes() -> int:
    """Bytes of memory of this process, without pages of mapped files, which the system frees when it needs memory."""
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared


def seek(directory: Path, ranks: int) -> dict[str, float]:
    """Opens the set and reads one rank's rows of a step in the third epoch. Returns seconds and megabytes, too."""
    before = _own_bytes()
    began = time.perf_counter()
    masking = MaskingSettings()
    mixture = open_mixture([directory], [1], np.zeros(VOCABULARY, bool), "sop", seed=0, masking=masking)
    step = int(2.5 * mixture.rows) // ranks
    (batch,) = training_step(mixture, step, ranks - 1, ranks, 1, ranks)
    seconds = time.perf_counter() - began
    assert (batch.input_ids != 0).all()
    grown = (_own_bytes() - before) / 1e6
    return {"rows": mixture.rows, "tokens": mixture.rows * TOKENS_A_ROW, "seconds": seconds, "megabytes": grown}


def measure(tokens: int, ranks: int) -> dict[str, float]:
    """Makes a set and seeks in it in a new process, whose memory nothing else has used."""
    with tempfile.TemporaryDirectory() as folder:
        make_set(Path(folder), tokens)
        command = [sys.executable, "-m", "benchmarks.seek", "--in", folder, "--ranks", str(ranks)]
        found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return found


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    p = Parser(prog="python -m benchmarks.seek", description=__doc__.splitlines()[0])
    p.add_argument("--tokens", type=int, default=4_000_000_000, metavar="N", help="(4000000000)")
    p.add_argument("--ranks", type=int, default=4096, metavar="N", help="(4096)")
    p.add_argument("--in", dest="directory", type=Path, metavar="DIR", help="an existing set; prints JSON")
    args = p.parse_all(argv)
    if args.directory is not None:
        print(json.dumps(seek(args.directory, args.ranks)))
        return
    found = measure(args.tokens, args.ranks)
    print(
        f"{found['tokens']:,.0f} tokens in {found['rows']:,.0f} rows: opened, and the first batch of the last of "
        f"{args.ranks} ranks read in the third epoch, in {found['seconds']:.3f} s and {found['megabytes']:.1f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
