"""Shards of made-up text: a machine for measurements needs no corpus and no internet."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_SYLLABLES = ("ba", "do", "fi", "gu", "ke", "la", "mo", "ni", "pu", "re", "sa", "to", "vi", "wu")
_WORDS = [a + b + c for a in _SYLLABLES for b in _SYLLABLES for c in ("", "lon", "mist", "rand")]


def make_shards(folder: Path, length: int, documents: int) -> Path:
    """Makes shards of rows of `length` tokens in `folder` with data_prep's jobs, unless they are there.

    Returns their directory. "held_out" beside it has a few held-out documents.
    """
    shards = folder / f"train-{length}"
    if (shards / "manifest.json").exists():
        return shards
    folder.mkdir(parents=True, exist_ok=True)
    source, texts, vocabulary = folder / "texts.jsonl", folder / "documents", folder / "vocabulary.model"
    if not source.exists():
        source.write_text("".join(json.dumps(one) + "\n" for one in _documents(documents)), encoding="utf-8")
    held_out = folder / f"held_out-{length}"
    to_shards = ["shards", "--documents", texts, "--vocab", vocabulary, "--max-seq-length", length]
    for job in (
        ["extract", "--source", "jsonl", "--input", source, "--out", texts, "--held-out", "0.05"],
        ["vocab", "--documents", texts, "--out", vocabulary, "--size", "200"],
        [*to_shards, "--out", held_out, "--split", "held_out"],
        [*to_shards, "--out", shards],
    ):
        done = subprocess.run([sys.executable, "-m", "data_prep", *map(str, job)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"data_prep {job[0]}: {done.stderr}")
    return shards


def _documents(count: int) -> Iterator[dict[str, str]]:
    """Documents of sentences whose words follow each other by a rule, so that a model can learn them."""
    chance = random.Random(0)
    for _ in range(count):
        paragraphs = [" ".join(_sentence(chance) for _ in range(chance.randint(5, 15))) for _ in range(8)]
        yield {"text": "\n\n".join(paragraphs)}


def _sentence(chance: random.Random) -> str:
    at, words = chance.randrange(len(_WORDS)), []
    for _ in range(chance.randint(4, 24)):
        words.append(_WORDS[at])
        at = (3 * at + chance.randrange(4)) % len(_WORDS)
    return " ".join(words).capitalize() + "."
