"""The Python API: the commands as functions, trained models, and shards as a dataset of torch.

A function runs its command in child processes, prints what it prints, and returns its results. The arguments are the
flags of the command (`_words`); the signatures are made from the declarations of the flags. A mistake raises UserError
with one line, any other end RuntimeError with the last one.
"""

import argparse
import contextlib
import functools
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from common import PREFIX
from common.command_line import Parser
from common.environment import gpus_of_driver
from common.errors import UserError
from common.text import did_you_mean
from data_prep.__main__ import JOBS
from data_prep.__main__ import parse as parse_job
from data_prep.format.shard_manifest import read_manifest
from data_prep.format.shards import read_vocabulary
from model.config import IGNORED_LABEL
from pipeline.checkpoint.run_directory import RESULTS, ResultsRecord, read_results
from pipeline.data.collate import Batch, Objective
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import open_mixture
from pipeline.finetuning.predictor import Predictor as Model
from pipeline.finetuning.predictor import open_predictor
from pipeline.settings.declare import flags_of
from pipeline.settings.finetune_flags import FinetuneFlags, seed_directories
from pipeline.settings.pretrain_flags import PretrainFlags
from pipeline.training.metrics_file import last_record

Place = str | os.PathLike[str]
F = TypeVar("F", bound=Callable[..., Any])


def _named(flags: Iterable[inspect.Parameter]) -> Callable[[F], F]:
    """Replaces the **flags of a function's signature by these parameters, as far as it does not name them itself."""

    def add(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [one for one in flags if one.name not in signature.parameters]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return add


_parameter = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)


def _flags_of_command(command: type[Any]) -> Iterator[inspect.Parameter]:
    """The flags of a training, with their defaults. One that the command requires has None."""
    hints = get_type_hints(command)
    for one in flags_of(command):
        default = None if one.required else one.default
        yield _parameter(one.key.replace("-", "_"), default=default, annotation=hints[one.field])


def _flags_of_job(job: str) -> dict[str, argparse.Action]:
    """The flags of a job of `data_prep`, by their names in Python."""
    parser = Parser(prog=job)
    importlib.import_module(PREFIX + JOBS[job].module).add_arguments(parser)
    named = {action.option_strings[-1].removeprefix("--").replace("-", "_"): action for action in parser._actions}
    return {name: action for name, action in named.items() if name not in ("help", "version")}


_JOB_FLAGS = {job: _flags_of_job(job) for job in ("extract", "vocab", "shards")}
"""The jobs of `prepare`, in their order."""


def _flags_of_preparation() -> Iterator[inspect.Parameter]:
    """The flags of the three jobs that `prepare` does not give itself. Those that are switches are False."""
    for name, action in {name: action for job in _JOB_FLAGS.values() for name, action in job.items()}.items():
        default, kind = (False, bool) if action.nargs == 0 else (action.default, Any)
        if name not in ("documents", "vocab", "out", "split", "input"):
            yield _parameter(name, default=default, annotation=kind)


def load(source: Place) -> Model:
    """Opens a run, an export, a published model, or one of the hub by its name, on the GPU if there is one."""
    return open_predictor(Path(source), "the source")


class Corpus(NamedTuple):
    """What `prepare` has made; `held_out` is None if no document was held out."""

    documents: Path
    vocabulary: Path
    train: Path
    held_out: Path | None


class Run(NamedTuple):
    """A finished run: its --output, and its metrics.

    After pre-training, these are the last record of metrics.jsonl, of held-out data if there are any; after fine-tuning
    those of results.json by split (the median of several seeds).
    """

    path: Path
    metrics: dict[str, Any]

    @property
    def export(self) -> Path:
        """The model that a pre-training run ends with, in the layout of `transformers`."""
        return self.path / "export"

    def load(self) -> Model:
        """The model of the run; of several seeds that of the first."""
        return load(next(iter(seed_directories(self.path, "settings.json")), self.path))


@_named(_flags_of_command(PretrainFlags))
def pretrain(
    *,
    data: Place | Sequence[Place],
    output: Place,
    deepspeed_config: Place | Mapping[str, Any] | None = None,
    ranks: int | None = None,
    master_port: int | None = None,
    **flags: Any,
) -> Run:
    """Pre-trains as `albert pretrain` does.

    Args:
        data: directories of shards, each with ":WEIGHT" if wanted.
        deepspeed_config: a file, or its content.
        ranks: processes, one for each GPU; None: all GPUs of this machine, or one process without any.
        master_port: where several ranks meet; None for DeepSpeed's 29500.
        flags: the other flags, such as model="albert-base" and eval_data=...
    """
    with _as_file(deepspeed_config) as config:
        words = _words({"data": data, "output": output, "deepspeed_config": config, **flags})
        _run([*_launcher(ranks, master_port), f"{PREFIX}pipeline.pretrain", *words])
    run = Path(output)
    return Run(run, last_record(run, "eval") or last_record(run, "train") or {})


@_named(_flags_of_command(FinetuneFlags))
def finetune(
    *,
    task: str,
    init: Place,
    output: Place,
    data: Place | None = None,
    ranks: int | None = None,
    master_port: int | None = None,
    **flags: Any,
) -> Run:
    """Fine-tunes as `albert finetune` does. `ranks`, `master_port` and `flags` as for `pretrain`.

    Args:
        task: a task of the paper, or a kind of task on own files such as "classification" (docs/own_tasks.md).
        init: a run, an export, or a model of the hub.
        data: the directory of the task's files; None with `train_file`.
    """
    given = {"task": task, "init": init, "data": data, "output": output, **flags}
    _run([*_launcher(ranks, master_port), f"{PREFIX}pipeline.finetune", *_words(given)])
    results: ResultsRecord = read_results(Path(output) / RESULTS)
    return Run(Path(output), results.scores)


@_named(_flags_of_preparation())
def prepare(
    *,
    input: Place | Sequence[Place],
    output: Place,
    source: str,
    vocabulary: Place | None = None,
    held_out: float = 0.01,
    max_seq_length: int = 512,
    **flags: Any,
) -> Corpus:
    """Turns text into shards as `albert data extract`, `vocab` and `shards` do (docs/data.md).

    Args:
        input: files or directories of the kind `source`, such as "books" or "jsonl".
        vocabulary: an existing one; None trains one.
        held_out: part of the documents to evaluate on.
        flags: other flags of the three jobs, such as text_field="body", size=8000 or dedup="near". Each goes to the
            jobs that have it, and all are checked before the first job begins.
    """
    root, jobs = Path(output), [job for job in _JOB_FLAGS if job != "vocab" or vocabulary is None]
    _check_known(flags, jobs)
    documents, shards = root / "documents", root / "shards"
    vocab = root / "vocabulary.model" if vocabulary is None else Path(vocabulary)
    own: dict[str, dict[str, Any]] = {
        "extract": {"source": source, "input": input, "out": documents, "held_out": held_out or None},
        "vocab": {"documents": documents, "out": vocab},
        "shards": {"documents": documents, "vocab": vocab, "max_seq_length": max_seq_length},
    }

    def words_of(job: str, **more: Any) -> list[str]:
        for_job = {name: value for name, value in flags.items() if name in _JOB_FLAGS[job]}
        switches = {name: value or None for name, value in for_job.items() if _JOB_FLAGS[job][name].nargs == 0}
        return [job, *_words(own[job] | for_job | switches | more)]

    for job in jobs:
        parse_job(words_of(job, **({"out": shards} if job == "shards" else {})))
    begin = [sys.executable, "-m", f"{PREFIX}data_prep"]
    for job in jobs[:-1]:
        _run([*begin, *words_of(job)])
    made: dict[str, Path] = {}
    for split in ("train", "held_out") if any(documents.glob("held_out-*")) else ("train",):
        made[split] = shards / split
        _run([*begin, *words_of("shards", split=split, out=made[split])])
    return Corpus(documents, vocab, made["train"], made.get("held_out"))


def _check_known(flags: Iterable[str], jobs: Sequence[str]) -> None:
    """Raises UserError for a flag that none of the jobs has."""
    known = {name for job in jobs for name in _JOB_FLAGS[job]}
    for name in flags:
        if name not in known and name in _JOB_FLAGS["vocab"]:
            raise UserError(f"{name} is for training a vocabulary, and one is given; drop {name} or vocabulary")
        if name not in known:
            raise UserError(f"prepare has no flag {name}; {did_you_mean(name, known, 'see its help')}")


@contextlib.contextmanager
def _as_file(config: Place | Mapping[str, Any] | None) -> Iterator[Place | None]:
    """The DeepSpeed JSON as a file while the block runs: the run keeps its content in settings.json."""
    if not isinstance(config, Mapping):
        yield config
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "deepspeed.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        yield path


Layout = Literal["packed", "masked_lm"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


class Shards(Dataset[dict[str, Tensor]]):
    """The rows of one shard set, with the sentence order and the masks of an epoch, by (seed, epoch, row) alone.

    A row holds several pairs. With the layout "packed" it has the fields of `pipeline.data.collate.Batch`, which
    `AlbertForPreTraining` of `model` takes. With "masked_lm" it has what a masked language model of `transformers`
    takes: input_ids, token_type_ids, position_ids (S,); attention_mask (1, S, S), True inside each pair; and labels
    (S,), -100 where nothing is predicted. Raises UserError: there are no shards, or they are damaged.
    """

    def __init__(
        self,
        directory: Place,
        *,
        objective: Objective = "sop",
        seed: int = 0,
        epoch: int = 0,
        mask_probability: float = 0.15,
        layout: Layout = "packed",
    ) -> None:
        for name, value, known in (("objective", objective, get_args(Objective)), ("layout", layout, LAYOUTS)):
            if value not in known:
                raise UserError(f"{name} is {value!r}; give one of {', '.join(known)}")
        place, masking = Path(directory), MaskingSettings(mask_probability)
        self.vocabulary = read_vocabulary(place, read_manifest(place))
        mixture = open_mixture([place], [1], self.vocabulary.continues_word, objective, seed, masking)
        (self._collator,) = mixture.collators
        self._layout, self._epoch = layout, epoch

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch; a DataLoader with `persistent_workers` would keep the one before."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._collator.shards)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Tensor]]:
        """The rows `indices`, which are read together; a DataLoader calls this."""
        if any(not 0 <= index < len(self) for index in indices):
            raise IndexError(f"rows {min(indices)} to {max(indices)} of {len(self)}")
        batch = self._collator.read([self._epoch] * len(indices), list(indices))
        fields = batch._asdict() if self._layout == "packed" else _masked_lm(batch)
        return [{name: torch.from_numpy(values[row]) for name, values in fields.items()} for row in range(len(indices))]


def _masked_lm(batch: Batch) -> dict[str, NDArray[Any]]:
    labels = np.full_like(batch.input_ids, IGNORED_LABEL)  # (B, S)
    row, column = np.nonzero(batch.masked_labels != IGNORED_LABEL)
    labels[row, batch.masked_positions[row, column]] = batch.masked_labels[row, column]
    ids = batch.sequence_ids  # (B, S)
    mask = (ids[:, :, None] == ids[:, None, :])[:, None]  # (B, 1, S, S), padding sees padding
    shared = {name: getattr(batch, name) for name in ("input_ids", "token_type_ids", "position_ids")}
    return {**shared, "attention_mask": mask, "labels": labels}


def _words(flags: Mapping[str, Any]) -> list[str]:
    """`max_seq_length=128` as --max-seq-length 128. A list gives several words, True the flag alone, None nothing."""
    words = []
    for name, value in flags.items():
        if value is None:
            continue
        words.append("--" + (name if name == "deepspeed_config" else name.replace("_", "-")))  # DeepSpeed's own
        several = value if isinstance(value, list | tuple) else [value]
        words += [] if value is True else ["false" if each is False else str(each) for each in several]
    return words


def _launcher(ranks: int | None, master_port: int | None = None) -> list[str]:
    """The words before the module of a training."""
    if ranks is None:
        ranks = 1 if os.environ.get("DS_ACCELERATOR") == "cpu" else max(1, len(gpus_of_driver()))
    if ranks == 1:
        return [sys.executable, "-m"]
    port = [] if master_port is None else ["--master_port", str(master_port)]
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--quiet", "--num_accelerators", str(ranks)]
    return [*launcher, *port, "--module"]


def _run(command: Sequence[str]) -> None:
    """Runs a command and prints its lines as they come.

    A KeyboardInterrupt is passed on, and the command then saves. It has a session of its own, so that an interrupt of
    this process alone and Ctrl-C at a terminal, which all processes of a session get, are the same: it gets one.
    """
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    streams |= {"text": True, "errors": "replace", "start_new_session": True}
    paths = os.pathsep.join(filter(None, sys.path))  # the command finds what this process finds
    # An interrupt that comes while the command starts waits until its number is known.
    early, before = list[int](), signal.getsignal(signal.SIGINT)
    waits = before is not None and threading.current_thread() is threading.main_thread()
    if waits:
        signal.signal(signal.SIGINT, lambda number, frame: early.append(number))
    try:
        process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}, **streams)
    finally:
        if waits:
            signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    last = ""
    try:
        for number in early:
            signal.raise_signal(number)
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        print(process.communicate()[0], end="", flush=True)
        raise
    if process.wait() == 2 and last.startswith("error: "):
        raise UserError(last.removeprefix("error: "))
    if process.returncode != 0:
        raise RuntimeError(f"the command ended with status {process.returncode}: {last}")
