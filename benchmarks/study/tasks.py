"""The tasks below --data-root, and a split of their training data that chooses the settings of fine-tuning.

The choice must not see the dev set. So every task's training examples are divided: OUT/TASK has official files whose
dev set is a part of the official training set. If there is a dev set only, it is divided by article first, into a
training set and a dev set of the study's own.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from common.errors import UserError
from common.files import atomic
from data_prep.text.vocabulary import Vocabulary
from pipeline.finetuning.task import make_features
from pipeline.tasks.features.span import SpanLimits
from pipeline.tasks.files import reading
from pipeline.tasks.files.glue import GlueFiles
from pipeline.tasks.files.squad import SquadFiles
from pipeline.tasks.task import Task

DEV_PART = 5
"""One of this many examples is for the dev set."""


def fits(task: Task, splits: Collection[str]) -> bool:
    """Whether the study can use a task: it has a dev set, and a training set or articles that can be divided."""
    return bool(set(splits) & set(task.dev_splits)) and ("train" in splits or isinstance(task.files, SquadFiles))


def official_files(task: Task, directory: Path, out: Path) -> Path:
    """The directory with the task's training set and dev set; made in `out` of the dev set if there is no other."""
    assert task.files is not None
    if "train" in task.files.find(task, directory):
        return directory
    return divide(task, directory, out, None, task.dev_splits[0])


def training_size(task: Task, directory: Path, vocabulary: Vocabulary, length: int, stride: int) -> tuple[int, float]:
    """The samples of the training data in `directory`, and their mean number of tokens.

    A sample is a text or a pair, all options of a question, or a window of a passage.

    Args:
        length: tokens of the longest sequence.
        stride: tokens from the start of one window to the start of the next one.
    """
    train = {"train": reading.read(task, str(directory))["train"]}
    lengths = make_features(task, vocabulary, train, length, SpanLimits(doc_stride=stride))["train"].lengths
    return len(lengths), float(lengths.mean())


def divide(task: Task, directory: Path, out: Path, limit: int | None, split: str = "train") -> Path:
    """Writes a training set and a dev set made of the examples of one split in `directory`.

    Which examples go into which set depends on their text alone.

    Args:
        limit: of the lines or passages in both sets together. None takes all and keeps the passages of an article
            together.
    Returns:
        The directory for `pipeline.finetune --data`.
    """
    assert task.files is not None
    files = task.files.find(task, directory)[split]
    done = out / "divided"
    if done.exists():
        return out
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    if isinstance(task.files, GlueFiles):
        lines = files[0].read_bytes().decode("utf-8-sig").splitlines(keepends=True)
        header = [] if task.files.columns is not None else lines[:1]
        _write(out, ".tsv", lines[len(header) :], limit, lambda part: "".join([*header, *part]))
    elif isinstance(task.files, SquadFiles):
        articles = [one for file in files for one in json.loads(file.read_text("utf-8"))["data"]]
        if limit is not None:
            articles = [{**one, "paragraphs": [part]} for one in articles for part in one["paragraphs"]]
        passages = [json.dumps(one) for one in articles]
        suffix = f"-{task.files.version}.json"
        _write(out, suffix, passages, limit, lambda part: f'{{"data": [{", ".join(part)}]}}')
    else:
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines(keepends=True)]
        if any(file.suffix != ".jsonl" for file in files):
            raise UserError(f"{directory}: the study reads {task.name} from .jsonl files; make train.jsonl of them")
        _write(out, ".jsonl", lines, limit, "".join)
    atomic.write_text(done, "\n")
    return out


def _write(out: Path, suffix: str, parts: Iterable[str], limit: int | None, join: Callable[[list[str]], str]) -> None:
    """Writes `out`/train and `out`/dev; the order of the parts is that of the hashes of their text."""
    ordered = sorted(parts, key=lambda part: hashlib.sha256(part.encode()).digest())[:limit]
    dev = max(1, len(ordered) // DEV_PART)
    atomic.write_text(out / f"dev{suffix}", join(ordered[:dev]))
    atomic.write_text(out / f"train{suffix}", join(ordered[dev:]))
