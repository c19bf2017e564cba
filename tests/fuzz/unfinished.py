"""Jobs and runs that have ended before they were finished, as a kill leaves them."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from data_prep.__main__ import main as data_prep
from pipeline import pretrain, reproduce
from pipeline.checkpoint.saver import Saver


class Killed(BaseException):
    """The job ends here."""


def make(root: Path) -> None:
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
    from tests.fuzz.commands import COMMANDS

    (command,) = (command for command in COMMANDS if command.name == "pretrain goes on")
    start = Saver.start

    def save_and_stop(*arguments: Any, **settings: Any) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        start(*arguments, **settings)

    with mock.patch.object(Saver, "start", save_and_stop):
        status = pretrain.main([*command.arguments(root), "--save-interval", "1"])
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
