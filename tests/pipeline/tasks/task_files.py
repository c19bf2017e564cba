"""Writes small official files of every task from made-up sentences, with labels that a model can learn."""

import json
from pathlib import Path

import numpy as np

from tests.pipeline.conftest import sentences

SIZES = {"train": 96, "dev": 37, "test": 11}
ENTAILMENT = ("entailment", "not_entailment")


def write_all(root: Path, seed: int = 0) -> None:
    """GLUE below root/glue, SQuAD below root/squad, RACE below root/race."""
    rng = np.random.default_rng(seed)
    for split, size in SIZES.items():
        texts = list(sentences(rng, 2 * size))
        singles, pairs = texts[:size], list(zip(texts[:size], texts[size:]))
        _write_glue(root / "glue", split, singles, pairs)
        _write_squad(root / "squad", split, rng, size)
        _write_race(root / "race", split, rng, size)


def label_of(text: str) -> int:
    """The label of a sentence: 1 if its first letter comes before "k" in the alphabet, else 0."""
    return int(text[0].lower() < "k")


def _write(path: Path, rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def _write_glue(glue: Path, split: str, singles: list[str], pairs: list[tuple[str, str]]) -> None:
    labelled = split != "test"
    index = [str(number) for number in range(len(singles))]

    def table(
        directory: str, names: list[str], label: str, rows: list[list[str]], file: str = split, key: str = "index"
    ) -> None:
        """Writes rows that end in their label; a test file has an index instead of it."""
        if not labelled:
            names, rows = [key, *names], [[i, *row] for i, row in zip(index, rows)]
        rows = [[*names, label], *rows]
        _write(glue / directory / f"{file}.tsv", rows if labelled else [row[:-1] for row in rows])

    def single(names: tuple[str, str]) -> list[list[str]]:
        return [[text, names[label_of(text)]] for text in singles]

    def pair(names: tuple[str, ...]) -> list[list[str]]:
        return [[a, b, names[(label_of(a) + label_of(b)) % len(names)]] for a, b in pairs]

    two = ["sentence1", "sentence2"]
    if labelled:
        _write(glue / "CoLA" / f"{split}.tsv", [["x", label, "", text] for text, label in single(("0", "1"))])
    else:
        table("CoLA", ["sentence"], "label", single(("0", "1")))
    table("SST-2", ["sentence"], "label", single(("0", "1")))
    table("MRPC", ["#1 String", "#2 String"], "Quality", pair(("0", "1")))
    table("STS-B", two, "score", [[a, b, f"{5 * label_of(a):.3f}"] for a, b in pairs])
    table("QNLI", ["question", "sentence"], "label", pair(ENTAILMENT))
    table("RTE", two, "label", pair(ENTAILMENT))
    table("WNLI", two, "label", pair(("0", "1")))
    table("QQP", ["question1", "question2"], "is_duplicate", pair(("0", "1")), key="id")
    three = pair(("contradiction", "entailment", "neutral"))
    for file in [split] if split == "train" else [f"{split}_matched", f"{split}_mismatched"]:
        table("MNLI", two, "gold_label", three, file)
    if not labelled:
        table("diagnostic", two, "gold_label", three, "diagnostic")


def _write_squad(squad: Path, split: str, rng: np.random.Generator, size: int) -> None:
    """Writes questions of which every third one in version 2.0 has no answer; some passages exceed one window."""
    squad.mkdir(parents=True, exist_ok=True)
    for version in ("v1.1", "v2.0"):
        paragraphs = []
        for number in range(size):
            words = " ".join(sentences(rng, 12 if number % 5 == 0 else 2)).split(" ")
            at = int(rng.integers(len(words)))
            start = sum(len(word) + 1 for word in words[:at])
            answers = [{"text": words[at], "answer_start": start}]
            if version == "v2.0" and number % 3 == 0:
                answers = []
            question = {"id": f"{split}-{number}", "question": f"Where is {words[at]}?", "answers": answers}
            paragraphs.append({"context": " ".join(words), "qas": [question]})
        content = {"version": version, "data": [{"title": "made up", "paragraphs": paragraphs}]}
        (squad / f"{split}-{version}.json").write_text(json.dumps(content), encoding="utf-8")


def _write_race(race: Path, split: str, rng: np.random.Generator, size: int) -> None:
    for number in range(size // 4):
        level = ("middle", "high")[number % 2]
        options = [list(sentences(rng, 4)) for _ in range(2)]
        answers = [str(letter) for letter in rng.choice(list("ABCD"), 2)]
        record = {
            "article": " ".join(sentences(rng, 3)),
            "questions": ["What is _ ?", "Which one?"],
            "options": options,
            "answers": answers,
            "id": f"{level}{number}.txt",
        }
        path = race / split / level / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")
