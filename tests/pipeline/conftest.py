"""A small corpus of made-up sentences, as documents, vocabulary and shards."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from data_prep.text.load_vocabulary import load_vocabulary
from tests.pipeline.workers import forked

REPOSITORY = Path(__file__).resolve().parents[2]


def run(*command, status=0, timeout=1500, **environment):
    """Runs a command from the repository's root; its output, which is shown where the status is not as expected.

    `python -m pipeline.NAME` is forked from a process that has imported torch and DeepSpeed.
    """
    words = [str(part) for part in command]
    variables = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **environment}
    if words[0] in ("python", sys.executable) and words[1] == "-m" and "pipeline" in words[2].split("."):
        result = forked.run_module(words[2], words[3:], REPOSITORY, variables, timeout)
    else:
        result = subprocess.run(
            words, cwd=REPOSITORY, env=variables, capture_output=True, text=True, timeout=timeout, check=False
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
    """Directories and files: documents, vocabulary, and train and held_out shards of 64 positions.

    Tests that change it work on a copy.
    """
    root = made_once(tmp_path_factory, "corpus", _make_corpus)
    return SimpleNamespace(
        documents=root / "documents",
        vocabulary=root / "vocabulary.model",
        train=root / "shards" / "train",
        held_out=root / "shards" / "held_out",
    )


@pytest.fixture
def refusal(capsys):
    """Calls the `main` of a command with words that it refuses. Returns the one line that it says."""

    def refusal_of(main, *words):
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as left:
            status = left.code
        said = capsys.readouterr()
        assert (status, said.out, said.err[:7], said.err.count("\n")) == (2, "", "error: ", 1), said.err
        return said.err

    return refusal_of


@pytest.fixture(scope="session")
def vocabulary(corpus):
    """The vocabulary of `corpus`."""
    return load_vocabulary(corpus.vocabulary)


def made_once(tmp_path_factory, name, make):
    """The directory `name`, which `make` gets and makes. It is made once for all processes that share the tests."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            make(root)
    return root


def _make_corpus(root):
    rng = np.random.default_rng(0)
    books = root / "books"
    books.mkdir(parents=True)
    for number in range(60):
        paragraphs = [" ".join(sentences(rng, int(rng.integers(5, 15)))) for _ in range(8)]
        (books / f"book{number:02d}.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    documents, vocabulary = root / "documents", root / "vocabulary.model"
    data_prep("extract", "--source", "books", "--input", books, "--out", documents, "--held-out", "0.02")
    data_prep("vocab", "--documents", documents, "--out", vocabulary, "--size", "200")
    for split in ("train", "held_out"):
        data_prep(
            "shards", "--documents", documents, "--vocab", vocabulary,
            "--out", root / "shards" / split, "--split", split, "--max-seq-length", "64",
        )  # fmt: skip


def newest(output):
    """The step of the newest checkpoint; 0 before the first."""
    return max((int(path.name[5:]) for path in (output / "checkpoints").glob("step-*")), default=0)


def await_step(process, output, step):
    """Returns once there is a checkpoint of `step` or a later one."""
    deadline = time.monotonic() + 1500
    while newest(output) < step:
        assert process.poll() is None, f"the run ended early: {process.stdout and process.stdout.read()}"
        assert time.monotonic() < deadline, "the run never came so far"
        time.sleep(0.005)
