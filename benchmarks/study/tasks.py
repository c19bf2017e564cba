"""The tasks below --data-root, as the study uses them: OUT/TASK/final and OUT/TASK/choice have official files.

The choice of the settings must not see the dev set, so its dev set is a part of the official training set. If a task
has a dev set only, it is divided by article first. No test set is kept, and dev sets that would take longer than the
training are made smaller.
"""

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.study.plan import Plan
from common.files import atomic
from common.files.json_files import read_object
from data_prep.text.vocabulary import Vocabulary
from pipeline.finetuning.fine_tuning import make_features
from pipeline.tasks.files import reading
from pipeline.tasks.files.glue import GlueFiles
from pipeline.tasks.files.passages import SquadFiles
from pipeline.tasks.files.tables import read_text
from pipeline.tasks.task import SpanLimits, Task

DEV_PART = 5
"""One of this many pieces of a training set is for the dev set of the choice."""


@dataclass(frozen=True)
class Pieces:
    """A part of a split, in pieces that stay whole: lines of a table, passages with their questions, or articles.

    Attributes:
        ending: of the name of a file that holds them.
        opening, separator, closing: what the file has before, between and after the pieces.
        texts: the pieces.
    """

    ending: str
    opening: str
    separator: str
    closing: str
    texts: Sequence[str]

    def first(self, fraction: float, least: int) -> "Pieces":
        """This fraction of the pieces, and at least `least` of them. The hashes of their texts choose them."""
        return replace(self, texts=self._shuffled()[: max(least, round(fraction * len(self.texts)))])

    def divided(self) -> tuple["Pieces", "Pieces"]:
        """A training set and a dev set. Which piece is in which depends on its text alone."""
        texts = self._shuffled()
        dev = max(1, len(texts) // DEV_PART)
        return replace(self, texts=texts[dev:]), replace(self, texts=texts[:dev])

    def write(self, directory: Path, split: str) -> None:
        """Writes the official file of a split."""
        directory.mkdir(parents=True, exist_ok=True)
        text = f"{self.opening}{self.separator.join(self.texts)}{self.closing}"
        atomic.write_text(directory / f"{split}{self.ending}", text)

    def _shuffled(self) -> list[str]:
        return sorted(self.texts, key=lambda text: hashlib.sha256(text.encode()).digest())


@dataclass(frozen=True)
class Prepared:
    """A task that is ready to be fine-tuned.

    Attributes:
        final: directory of the training set and the dev set.
        choice: directory of a part of the training set, divided again.
        final_samples, choice_samples: samples in both training sets. A sample is a text or a pair, all options of a
            question, or a window of a passage.
        mean_tokens: of a training sample.
        dev_examples: examples in the dev set.
    """

    final: Path
    choice: Path
    final_samples: int
    choice_samples: int
    mean_tokens: float
    dev_examples: int


def fits(task: Task, splits: Collection[str]) -> bool:
    """Whether the study can use a task: it has a dev set, and a training set or articles that can be divided.

    WNLI is left out: its dev set has sentences of the training set with other labels, so what is learned is wrong.
    """
    if task.name == "wnli" or task.dev_splits[0] not in splits:
        return False
    return "train" in splits or isinstance(task.files, SquadFiles)


def prepare(task: Task, directory: Path, out: Path, vocabulary: Vocabulary, plan: Plan) -> Prepared:
    """Writes the files of a task below `out`, and last their sizes in prepared.json, unless they are there."""
    final, choice, sizes = out / "final", out / "choice", out / "prepared.json"
    if not sizes.exists():
        shutil.rmtree(out, ignore_errors=True)
        train, dev = _sets(task, directory)
        train.write(final, "train")
        dev.write(final, task.dev_splits[0])
        count, mean = size(task, final, task.dev_splits[0], vocabulary, plan)
        dev.first(min(1.0, plan.max_dev_tokens / (count * mean)), least=1).write(final, task.dev_splits[0])
        count, mean = size(task, final, "train", vocabulary, plan)
        fraction = min(1.0, plan.max_choice_samples / count, plan.max_choice_tokens / (count * mean))
        part = passages(task, train).first(fraction, least=2)
        for pieces, split in zip(part.divided(), ("train", task.dev_splits[0]), strict=True):
            pieces.write(choice, split)
        chosen, _ = size(task, choice, "train", vocabulary, plan)
        kept = reading.read(task, str(final))[task.dev_splits[0]]
        found = {
            "final_samples": count,
            "choice_samples": chosen,
            "mean_tokens": mean,
            "dev_examples": len(kept),
        }
        atomic.write_text(sizes, json.dumps(found) + "\n")
    return Prepared(final, choice, **read_object(sizes, f"remove {out}, and run the study again"))


def affordable(ready: Mapping[str, Prepared], tokens: float, plan: Plan) -> list[str]:
    """The names of the tasks that this many tokens suffice for, at least one.

    Runs that are too short show nothing. So there are fewer tasks rather than shorter runs, and those with most
    examples in their dev sets, because their intervals are narrowest.
    """
    count = max(1, int(tokens // plan.task_tokens))
    kept = sorted(ready, key=lambda name: ready[name].dev_examples, reverse=True)[:count]
    return [name for name in ready if name in kept]


def size(task: Task, directory: Path, split: str, vocabulary: Vocabulary, plan: Plan) -> tuple[int, float]:
    """The samples of a split in `directory`, and their mean number of tokens."""
    examples = {split: reading.read(task, str(directory))[split]}
    lengths = make_features(task, vocabulary, examples, plan.length, SpanLimits(doc_stride=plan.stride))[split].lengths
    return len(lengths), float(lengths.mean())


def pieces_of(task: Task, files: Sequence[Path]) -> Pieces:
    """The content of the official files of a split. Pieces of SQuAD are articles."""
    if isinstance(task.files, GlueFiles):
        lines = [line.rstrip("\r") for line in read_text(files[0]).rstrip("\r\n").split("\n")]
        first = int(task.files.read_table(files[0], ()).numbers[0]) - 1
        return Pieces(".tsv", "".join(f"{line}\n" for line in lines[:first]), "\n", "\n", lines[first:])
    if isinstance(task.files, SquadFiles):
        articles = [json.dumps(one) for file in files for one in json.loads(read_text(file))["data"]]
        return Pieces(f"-{task.files.version}.json", '{"data": [', ", ", "]}", articles)
    found: list[str] = []
    for file in files:
        content = read_text(file)
        # Only line feeds end a line: a text may hold other separators of lines.
        found += content.split("\n") if file.suffix == ".jsonl" else [json.dumps(json.loads(content))]
    return Pieces(".jsonl", "", "\n", "\n", [text for text in found if text.strip()])


def passages(task: Task, pieces: Pieces) -> Pieces:
    """Articles of SQuAD as one piece for each passage; pieces of other tasks as they are."""
    if not isinstance(task.files, SquadFiles):
        return pieces
    articles = map(json.loads, pieces.texts)
    parts = [json.dumps({**one, "paragraphs": [passage]}) for one in articles for passage in one["paragraphs"]]
    return replace(pieces, texts=parts)


def _sets(task: Task, directory: Path) -> tuple[Pieces, Pieces]:
    """The training set and the dev set; both of the dev set if it is alone."""
    assert task.files is not None
    files = task.files.find(task, directory)
    dev = pieces_of(task, files[task.dev_splits[0]])
    train, dev = (pieces_of(task, files["train"]), dev) if "train" in files else dev.divided()
    return train, passages(task, dev)
