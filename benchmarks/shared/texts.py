"""Shards of made-up text, for machines without a corpus and the internet, or of a file."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_SYLLABLES = ("ba", "do", "fi", "gu", "ke", "la", "mo", "ni", "pu", "re", "sa", "to", "vi", "wu")
_WORDS = [a + b + c for a in _SYLLABLES for b in _SYLLABLES for c in ("", "lon", "mist", "rand")]


def call(module: str, *words: object) -> str:
    """The output of `python -m module words` on the processor. Raises RuntimeError with its end if it fails."""
    command = [sys.executable, "-m", module, *map(str, words)]
    variables = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{module} {words[0]} ended with {ended.returncode}: {(ended.stdout + ended.stderr)[-500:]}")
    return ended.stdout


def make_shards(folder: Path, length: int, documents: int, text: Path | None = None) -> Path:
    """Makes shards of rows of `length` tokens in `folder` with data_prep's jobs, unless they are there.

    They hold `documents` made-up documents, or those of `text`, JSON Lines of {"text": ...}.

    Returns their directory. "held_out" beside it has a few held-out documents.
    """
    shards = folder / f"train-{length}"
    if (shards / "manifest.json").exists():
        return shards
    folder.mkdir(parents=True, exist_ok=True)
    source, texts, vocabulary = text or folder / "texts.jsonl", folder / "documents", folder / "vocabulary.model"
    if not source.exists():
        source.write_text("".join(json.dumps(one) + "\n" for one in _documents(documents)), encoding="utf-8")
    call("data_prep", "extract", "--source", "jsonl", "--input", source, "--out", texts, "--held-out", "0.05")
    size = 8000 if text else 800 if documents > 1000 else 200  # a small text has not more pieces
    call("data_prep", "vocab", "--documents", texts, "--out", vocabulary, "--size", size)
    for split, out in (("held_out", folder / f"held_out-{length}"), ("train", shards)):
        words = ["--documents", texts, "--vocab", vocabulary, "--max-seq-length", length, "--split", split]
        call("data_prep", "shards", *words, "--out", out)
    return shards


def _documents(count: int) -> Iterator[dict[str, str]]:
    """Documents of sentences whose words follow each other by a rule, so that a model can learn them.

    Half of them have at most 200 words or so, as the articles of Wikipedia; a few are long.
    """
    chance = random.Random(0)
    for _ in range(count):
        paragraphs = [
            " ".join(_sentence(chance) for _ in range(chance.randint(5, 15)))
            for _ in range(max(1, round(chance.lognormvariate(0.4, 1.0))))
        ]
        yield {"text": "\n\n".join(paragraphs)}


def _sentence(chance: random.Random) -> str:
    at, words = chance.randrange(len(_WORDS)), []
    for _ in range(chance.randint(4, 24)):
        words.append(_WORDS[at])
        at = (3 * at + chance.randrange(4)) % len(_WORDS)
    return " ".join(words).capitalize() + "."
