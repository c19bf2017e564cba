"""One small valid set of everything that commands read, made once and copied for each case."""

import json
import os
import shutil
import signal
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch

from common.files.checksums import content_checksum
from data_prep.__main__ import main as data_prep
from data_prep.text.vocabulary import Vocabulary
from model import AlbertConfig, AlbertForPreTraining, checkpoint, huggingface
from pipeline import pretrain, reproduce
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.saver import Saver
from pipeline.tasks.own_tasks import OwnRecord, make_task, record_of
from pipeline.tasks.task import Columns
from tests.data_prep import corpora
from tests.fuzz.commands import COMMANDS
from tests.pipeline.analysis import made_runs
from tests.pipeline.sharing import runs
from tests.pipeline.tasks import own_files, task_files

CONTENTS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""What files of runs and configurations hold."""


def make(root: Path) -> None:
    """Makes all inputs below `root`.

    Finished: documents/, vocabulary/, shards/, held_out/, run/, export/, own/ (an export of our own form), tuned/,
    finetuned/, users/ (files of own tasks), reviews/ (a run on such files), report/, stage/ and configs/.
    Unfinished: unfinished/, trained/ and reproduction/. A person's, which no command reads: victim/.
    """
    documents = corpora.write_documents(root / "documents", corpora.make_documents(30))
    (root / "vocabulary").mkdir()
    vocabulary = root / "vocabulary" / "small.model"
    data_prep(["vocab", "--documents", str(documents), "--out", str(vocabulary), "--size", "300"])
    words = ("--documents", str(documents), "--vocab", str(vocabulary), "--max-seq-length", "64")
    data_prep(["shards", *words, "--out", str(root / "shards")])
    others = corpora.write_documents(root / "others", corpora.make_documents(10))
    words = ("--documents", str(others), *words[2:])
    data_prep(["shards", *words, "--out", str(root / "held_out")])
    config = make_run(root / "run", vocabulary)
    torch.manual_seed(0)
    model = AlbertForPreTraining(config)
    huggingface.save(model, root / "export", vocabulary)
    checkpoint.save(model, root / "own")
    shutil.copyfile(vocabulary, root / "own" / "spiece.model")
    for number in range(2):
        metrics = {"dev": {"accuracy": 0.5}}
        tuned = made_runs.finetuning(root / "tuned" / f"rte-{number}", "rte", root / "run", metrics)
        made_runs.logits(tuned, "dev", 15, 5)
        answered = made_runs.finetuning(
            root / "tuned" / f"squad-{number}", "squad2", root / "run", {"dev": {"f1": 5.0}}
        )
        made_runs.answers(answered, "dev", 6, 3, null_score=0.5)
    runs.finetuning(root / "finetuned", vocabulary, config=runs.config_of(vocab_size=300), init=str(root / "run"))
    task_files.write_all(root / "tasks")
    own_files.write_all(root / "users")
    (root / "users" / "dev.conll").replace(root / "users" / "names" / "dev.conll")
    (root / "users" / "names" / "dev.jsonl").unlink()
    for ending in ("csv", "jsonl", "parquet"):
        own_files.write(
            root / "users" / f"new.{ending}", {"text": [f"Text {n}." for n in range(9)], "more": list(range(9))}
        )
    _reviews(root / "reviews", config, vocabulary)
    (root / "configs").mkdir()
    (root / "configs" / "deepspeed.json").write_text(json.dumps(CONTENTS["deepspeed"]))
    (root / "configs" / "hostfile").write_text("node1 slots=8\nnode2 slots=8\n")
    (root / "configs" / "text.txt").write_text("Some sentences. And one more.\n" * 20)
    (root / "records").mkdir()
    lines = [json.dumps({"id": str(n), "text": f"A text about number {n}. It has two sentences."}) for n in range(40)]
    (root / "records" / "records.jsonl").write_text("\n".join(lines) + "\n")
    for name in ("notes.txt", "logits/dev.npz", "checkpoints/step-00000001/state.json"):
        (root / "victim" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "victim" / name).write_text("of a person")
    assert COMMANDS["report again"].run(root) == COMMANDS["stage"].run(root) == 0
    _make_unfinished(root)


def make_in_child(root: Path) -> None:
    """As `make`, in a child process: the threads of libraries that it starts would be lost in later forks."""
    child = os.fork()
    if not child:
        try:
            make(root)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError("the inputs could not be made")


def make_run(directory: Path, vocabulary: Path) -> AlbertConfig:
    """A pre-training run after one step, with a checkpoint."""
    fields = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    config = AlbertConfig.preset("albert-tiny", **fields, embedding_size=4, vocab_size=300, max_position_embeddings=64)
    settings = {
        "model": config.to_dict(),
        "objective": "sop",
        "seed": 0,
        "steps": 2,
        "train_batch_size": 8,
        "data": content_checksum({}),
        "precision": "fp32",
        "world_size": 1,
        **{name: runs.RECORDED[name] for name in ("corpora", "device", "optimizer", "deepspeed")},
    }
    run_directory.write_settings_and_vocabulary(directory, settings, Vocabulary.load(vocabulary))
    torch.manual_seed(0)
    runs.checkpoint(directory, 1, AlbertForPreTraining(config).state_dict(), state=CONTENTS["state"])
    (directory / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in CONTENTS["metrics"]))
    return config


def _reviews(directory: Path, config: AlbertConfig, vocabulary: Path) -> None:
    """A fine-tuning run on own files after one step, with a checkpoint."""
    task = make_task("reviews", OwnRecord("classification", ("bad", "good"), ("accuracy",), Columns("text")))
    hyperparameters = {"max_length": 32, "learning_rate": 0.001}
    settings = {"task": "reviews", **record_of(task), "model": config.to_dict(), "hyperparameters": hyperparameters}
    run_directory.write_settings_and_vocabulary(
        directory, settings | {"precision": "fp32"}, Vocabulary.load(vocabulary)
    )
    torch.manual_seed(0)
    runs.checkpoint(directory, 1, task.kind.make_model(task, config).state_dict(), state=CONTENTS["state"])


class Killed(BaseException):
    """The job ends here."""


def _make_unfinished(root: Path) -> None:
    """Makes unfinished/ (documents, vocabulary and shards), trained/ and reproduction/ from the inputs in `root`."""
    place = root / "unfinished"
    words = ("extract", "--source", "jsonl", "--input", str(root / "records"), "--out", str(place / "documents"))
    _end_in("data_prep.jobs.extract.write_manifest", words)
    documents = ("--documents", str(root / "documents"))
    model = place / "vocabulary" / "v.model"
    model.parent.mkdir()
    _end_in(
        "data_prep.jobs.train_vocabulary.train_sentencepiece",
        ("vocab", *documents, "--out", str(model), "--size", "300"),
    )
    vocabulary = ("--vocab", str(root / "vocabulary" / "small.model"), "--max-seq-length", "64", "--dedup", "near")
    _end_in(
        "data_prep.format.manifest.write_manifest",
        ("shards", *documents, *vocabulary, "--out", str(place / "shards")),
    )
    _train(root)
    _reproduce(root)


def _end_in(function: str, words: Sequence[str]) -> None:
    """Runs a job of data_prep that is killed when it calls `function`."""

    def kill(*arguments: Any) -> NoReturn:
        raise Killed

    with mock.patch(function, kill):
        try:
            data_prep(words)
        except Killed:
            return
    raise AssertionError(f"{words[0]} has not called {function}")


def _train(root: Path) -> None:
    """A run that a signal has stopped after its first step."""
    words = COMMANDS["pretrain goes on"].arguments(root)[1:]
    start = Saver.start

    def save_and_stop(*arguments: Any, **settings: Any) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        start(*arguments, **settings)

    with mock.patch.object(Saver, "start", save_and_stop):
        status = pretrain.main([*words, "--save-interval", "1"])
    assert status == 75, status


def _reproduce(root: Path) -> None:
    """A table whose pre-trainings are done."""
    (root / "no-tasks").mkdir()
    words = ["7", "--scale", "paper", "--data", str(root / "shards"), "--eval-data", str(root / "held_out")]
    words += ["--additional-data", str(root / "shards"), "--data-root", str(root), "--out", str(root / "reproduction")]
    table, paths = reproduce.resolve(reproduce.parser().parse_args(words))
    for stage in reproduce.stages(table, paths):
        for command in stage:
            if command.done is not None:
                command.done.parent.mkdir(parents=True, exist_ok=True)
                command.done.write_text("1\n")
    with mock.patch("pipeline.reproduce.stages", return_value=[]):
        assert reproduce.main(words) == 0
    (paths.root / "logs" / "a.log").write_text("It is a log.\n")
