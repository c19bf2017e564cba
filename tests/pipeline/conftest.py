"""A small corpus of made-up sentences, as documents, vocabulary and shards."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def run(*command, status=0, timeout=300, **environment):
    """Runs a command from the repository's root; its output, which is shown where the status is not as expected."""
    result = subprocess.run(
        [str(part) for part in command],
        cwd=REPOSITORY,
        env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result


def data_prep(*arguments):
    return run(sys.executable, "-m", "data_prep", *arguments)


def sentences(rng, count):
    """Sentences whose words follow each other by a rule, so that context tells something about a masked word."""
    syllables = ["ba", "do", "fi", "gu", "ke", "la", "mo", "ni", "pu", "re", "sa", "to", "vi", "wu"]
    words = [a + b + c for a in syllables for b in syllables for c in ("", "lon", "mist", "rand")]
    for _ in range(count):
        at, picked = int(rng.integers(len(words))), []
        for _ in range(int(rng.integers(4, 14))):
            picked.append(words[at])
            at = (3 * at + int(rng.integers(4))) % len(words)
        yield " ".join(picked).capitalize() + "."


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Directories and files: documents, vocabulary, train and held_out shards of 64 positions, other_vocabulary."""
    root = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(0)
    books = root / "books"
    books.mkdir()
    for number in range(60):
        paragraphs = [" ".join(sentences(rng, int(rng.integers(5, 15)))) for _ in range(8)]
        (books / f"book{number:02d}.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    documents = root / "documents"
    data_prep("extract", "--source", "books", "--input", books, "--out", documents, "--held-out", "0.05")
    vocabulary = root / "vocabulary.model"
    data_prep("vocab", "--documents", documents, "--out", vocabulary, "--size", "200")
    shards = {}
    for split in ("train", "held_out"):
        shards[split] = root / "shards" / split
        data_prep(
            "shards", "--documents", documents, "--vocab", vocabulary, "--out", shards[split],
            "--split", split, "--max-seq-length", "64",
        )  # fmt: skip
    return SimpleNamespace(documents=documents, vocabulary=vocabulary, **shards)
