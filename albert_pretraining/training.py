"""The commands as functions: each runs the command in child processes, prints what it prints, and returns its results.

The arguments are the flags of the command, with underscores: `max_seq_length=128` is `--max-seq-length 128`. A list
gives a flag several words, True a flag alone, and None leaves it out. A second call with the same arguments resumes or
says that nothing is left to do, as the command does.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from albert_pretraining.models import Model, load
from common import PREFIX
from common.errors import UserError
from common.gpus import gpus_of_driver
from data_prep.format.shard_manifest import read_manifest
from pipeline.checkpoint.run_records import RESULTS, read_results
from pipeline.training.metrics_file import last_record, read_records

Place = str | os.PathLike[str]


@dataclass(frozen=True)
class Prepared:
    """Shards that `prepare` has made.

    Attributes:
        documents: the directory of documents.
        vocabulary: the file of the vocabulary.
        train: the shards to train on.
        held_out: the shards to evaluate on; None if no document was held out.
        metrics: rows and tokens of each split, such as {"train": {"rows": 5056, "tokens": 302379}}.
    """

    documents: Path
    vocabulary: Path
    train: Path
    held_out: Path | None
    metrics: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Run:
    """A finished run of `pretrain` or `finetune`.

    Attributes:
        path: its --output.
        metrics: after pre-training, the last record of metrics.jsonl, of held-out data if there are any; after
            fine-tuning, those of results.json by split (the median of several seeds).
    """

    path: Path
    metrics: dict[str, Any]

    @property
    def export(self) -> Path:
        """The model that a pre-training run ends with, in the layout of `transformers`."""
        return self.path / "export"

    def records(self, split: str = "train") -> list[dict[str, Any]]:
        """The records of metrics.jsonl by step, of the split "train" or "eval"."""
        return read_records(self.path, split)

    def load(self) -> Model:
        """The model of the run; of several seeds that of the first."""
        seeds = sorted(self.path.glob("seed-*"))
        return load(seeds[0] if seeds else self.path)


def pretrain(*, data: Place | Sequence[Place], output: Place, ranks: int | None = None, **flags: Any) -> Run:
    """Pre-trains as `albert pretrain` does.

    Args:
        data: directories of shards, each with ":WEIGHT" if wanted.
        output: the directory of the run.
        ranks: processes, one for each GPU; None: all GPUs of this machine, or one process without any.
        flags: the other flags, such as model="albert-base", deepspeed_config="ds_configs/base.json", eval_data=...
    Raises:
        UserError: a mistake in the arguments, in one line.
        RuntimeError: training failed or was stopped; it holds the exit status and the last line.
    """
    _run([*_launcher(ranks), f"{PREFIX}pipeline.pretrain", *_words({"data": data, "output": output, **flags})])
    run = Path(output)
    return Run(run, last_record(run, "eval") or last_record(run, "train") or {})


def finetune(*, task: str, init: Place, data: Place, output: Place, ranks: int | None = None, **flags: Any) -> Run:
    """Fine-tunes as `albert finetune` does. Arguments and errors as for `pretrain`.

    Args:
        task: a task of the paper, or a kind of task on own files such as "classification" (docs/own_tasks.md).
        init: a run, an export, or a model of the hub.
        data: the directory of the task's files.
    """
    given = {"task": task, "init": init, "data": data, "output": output, **flags}
    _run([*_launcher(ranks), f"{PREFIX}pipeline.finetune", *_words(given)])
    results = read_results(Path(output) / RESULTS)
    return Run(Path(output), results["median"] if results.get("seeds") else results["metrics"])


def prepare(
    *,
    input: Place | Sequence[Place],
    output: Place,
    source: str,
    vocabulary: Place | None = None,
    size: int = 30000,
    held_out: float = 0.01,
    max_seq_length: int = 512,
    ranks: int = 1,
    **flags: Any,
) -> Prepared:
    """Turns text into shards as `albert data extract`, `vocab` and `shards` do.

    Args:
        input: files or directories.
        output: gets documents/, vocabulary.model and shards/.
        source: the kind of collection, such as "books" or "jsonl" (docs/data.md).
        vocabulary: an existing one; None trains one of `size` pieces.
        held_out: part of the documents to evaluate on.
        max_seq_length: positions of a row.
        ranks: processes, under MPI if there are several.
        flags: other flags of `extract`, such as text_field="body".
    Raises:
        UserError, RuntimeError: as `pretrain`.
    """
    root, job = Path(output), [sys.executable, "-m", f"{PREFIX}data_prep"]
    if ranks > 1:
        job = ["mpirun", "-n", str(ranks), *job]
    documents = root / "documents"
    extract = {"source": source, "input": input, "out": documents, "held_out": held_out or None, **flags}
    _run([*job, "extract", *_words(extract)])
    if vocabulary is None:
        vocabulary = root / "vocabulary.model"
        if not vocabulary.exists():
            _run([*job, "vocab", *_words({"documents": documents, "out": vocabulary, "size": size})])
    made: dict[str, Path] = {}
    for split in ("train", "held_out") if any(documents.glob("held_out-*")) else ("train",):
        made[split] = root / "shards" / split
        shards = {"documents": documents, "split": split, "vocab": vocabulary, "out": made[split]}
        _run([*job, "shards", *_words({**shards, "max_seq_length": max_seq_length})])
    counts = {split: read_manifest(shards).counts for split, shards in made.items()}
    metrics = {split: {"rows": its.rows, "tokens": its.tokens} for split, its in counts.items()}
    return Prepared(documents, Path(vocabulary), made["train"], made.get("held_out"), metrics)


def _words(flags: Mapping[str, Any]) -> list[str]:
    """The flags as words of a command line."""
    words = []
    for name, value in flags.items():
        if value is not None:
            # The one flag with an underscore is DeepSpeed's own.
            words.append("--" + (name if name == "deepspeed_config" else name.replace("_", "-")))
            several = value if isinstance(value, list | tuple) else [value]
            words += [] if value is True else ["false" if each is False else str(each) for each in several]
    return words


def _launcher(ranks: int | None) -> list[str]:
    """The words before the module of a training."""
    if ranks is None:
        ranks = 1 if os.environ.get("DS_ACCELERATOR") == "cpu" else max(1, len(gpus_of_driver()))
    if ranks == 1:
        return [sys.executable, "-m"]
    return [sys.executable, "-m", "deepspeed.launcher.runner", "--quiet", "--num_accelerators", str(ranks), "--module"]


def _run(command: Sequence[str]) -> None:
    """Runs a command and prints its lines as they come, also in a notebook.

    Ctrl-C, and the interrupt of a notebook, reach the command itself, which then saves; a second one ends it.
    """
    environment = dict(os.environ)
    if not PREFIX:  # a checkout, which another directory does not find
        places = (str(Path(common.__file__).parents[1]), environment.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, env=environment
    )
    assert process.stdout is not None
    last, interrupted = "", False
    while process.poll() is None:
        try:
            for line in process.stdout:
                text = line.decode(errors="replace")
                print(text, end="", flush=True)
                last = text.strip() or last
            process.wait()
            break
        except KeyboardInterrupt:
            if interrupted:
                process.terminate()
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    if process.returncode == 2 and last.startswith("error: "):
        raise UserError(last.removeprefix("error: "))
    if process.returncode != 0:
        raise RuntimeError(f"the command ended with status {process.returncode}: {last}")
