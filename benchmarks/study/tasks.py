"""The tasks below --data-root, and a split of their training data that chooses the settings of fine-tuning.

The choice must not see the dev set. So every task's training examples are divided: OUT/TASK has official files whose
dev set is a part of the official training set.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from common.errors import UserError
from common.files import atomic
from pipeline.tasks.files import reading
from pipeline.tasks.files.glue import GlueFiles
from pipeline.tasks.files.squad import SquadFiles
from pipeline.tasks.task import Task

DEV_PART = 5
"""One of this many training examples chooses the settings."""


def examples(task: Task, directory: Path, split: str = "train") -> int:
    """The number of examples of a split."""
    return len(reading.read(task, str(directory))[split])


def divide(task: Task, directory: Path, out: Path, limit: int) -> Path:
    """Writes a training set and a dev set made of the training examples in `directory`, at most `limit` in all.

    Which examples go into which set depends on their text alone.

    Returns:
        The directory for `pipeline.finetune --data`.
    """
    assert task.files is not None
    files = task.files.find(task, directory)["train"]
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
        passages = [json.dumps({**one, "paragraphs": [part]}) for one in articles for part in one["paragraphs"]]
        suffix = f"-{task.files.version}.json"
        _write(out, suffix, passages, limit, lambda part: f'{{"data": [{", ".join(part)}]}}')
    else:
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines(keepends=True)]
        if any(file.suffix != ".jsonl" for file in files):
            raise UserError(f"{directory}: the study reads {task.name} from .jsonl files; make train.jsonl of them")
        _write(out, ".jsonl", lines, limit, "".join)
    atomic.write_text(done, "\n")
    return out


def _write(out: Path, suffix: str, parts: Iterable[str], limit: int, join: Callable[[list[str]], str]) -> None:
    """Writes `out`/train and `out`/dev; the order of the parts is that of the hashes of their text."""
    ordered = sorted(parts, key=lambda part: hashlib.sha256(part.encode()).digest())[:limit]
    dev = max(1, len(ordered) // DEV_PART)
    atomic.write_text(out / f"dev{suffix}", join(ordered[:dev]))
    atomic.write_text(out / f"train{suffix}", join(ordered[dev:]))
