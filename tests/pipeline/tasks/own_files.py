"""Small files of a user, of every task and format, with labels that a model can learn."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.pipeline.conftest import sentences

SIZES = {"train": 64, "dev": 21, "test": 7}
TOPICS = ("sports", "arts", "science")
"""Not in the order of their names, to see that the order of the logits is recorded."""


FILES = {
    "classification": "reviews/{}.csv",
    "pairs": "questions/{}.tsv",
    "regression": "stars/{}.jsonl",
    "tagging": "names/{}.jsonl",
    "multiple-choice": "exam/{}.parquet",
    "multi-label": "topics/{}.csv",
    "question-answering": "answers/{}.csv",
}
"""The files of each task in docs/own_tasks.md, by split."""


def write_all(root: Path, seed: int = 0) -> None:
    """The files that docs/own_tasks.md names, with its columns, each task in another format.

    Test rows have no label. Texts are short enough for 48 tokens, but for the tokens of train and dev rows.
    """
    rng = np.random.default_rng(seed)
    for split, size in SIZES.items():
        whole, second = list(sentences(rng, size)), [cut(text, 4) for text in sentences(rng, size)]
        first = [cut(text, 6) for text in whole]
        tokens = [(first if split == "test" else whole)[number].split() for number in range(size)]
        columns: dict[str, dict[str, Sequence[Any]]] = {
            "classification": {"text": first, "label": [TOPICS[number_of(text, 3)] for text in first]},
            "pairs": {"first": first, "second": second, "same": [number_of(text, 2) for text in first]},
            "regression": {"text": first, "stars": [5.0 * number_of(text, 2) for text in first]},
            "tagging": {"tokens": tokens, "tags": [tags_of(of_text) for of_text in tokens]},
            "multiple-choice": {
                "story": second,
                "question": ["Is it", "", "What is _ in it?"] * (size // 3) + [""] * (size % 3),
                **{name: [f"{cut(text, 2)} {name}" for text in first] for name in "abcd"},
                "answer": ["abcd"[number_of(text, 4)] for text in first],
            },
            "multi-label": {"text": first, "labels": [", ".join(labels_of(text)) for text in first]},
            "question-answering": {
                "question": second,
                "context": whole if split != "test" else first,
                "answer": [text.split()[-1] if number_of(text, 3) else "" for text in whole],
            },
        }
        for task, of_task in columns.items():
            if split == "test":
                of_task.pop(next(reversed(of_task)))
            write(file_of(root, task, split), of_task)
    dev = [json.loads(line) for line in file_of(root, "tagging", "dev").read_text().splitlines()]
    lines = ["\n".join(f"{token}\tX\t{tag}" for token, tag in zip(row["tokens"], row["tags"])) for row in dev]
    (root / "dev.conll").write_text("-DOCSTART- X O\n\n" + "\n\n".join(lines) + "\n")


def cut(text: str, words: int) -> str:
    """The first words of a text."""
    return " ".join(text.split()[:words])


def file_of(root: Path, task: str, split: str) -> Path:
    """The file of one split of a task."""
    return root / FILES[task].format(split)


def number_of(text: str, count: int) -> int:
    """The number of the class of a text, by its first letter."""
    return (ord(text[0].lower()) - ord("a")) * count // 26


def labels_of(text: str) -> list[str]:
    """The letters a, b and d that are in a text."""
    return [letter for letter in "abd" if letter in text.lower()]


def tags_of(tokens: Sequence[str]) -> list[str]:
    """A name is a token that begins with "b" or "d"; further ones directly behind it belong to it."""
    tags: list[str] = []
    for token in tokens:
        inside = token[0].lower() in "bd"
        tags.append(("I-NAME" if tags and tags[-1] != "O" else "B-NAME") if inside else "O")
    return tags


def write(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Writes a table in the format of the ending, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(columns), delimiter="," if path.suffix == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    return path
