"""Every file and directory that a command writes has the mode that the umask says: one table over the commands."""

import contextlib
import json
import os
import stat
import sys
from types import SimpleNamespace

import pytest

from data_prep import __main__ as data_prep_command
from data_prep.sources import sample
from pipeline import evaluate, export, reproduce
from pipeline.paper.experiments import Command
from tests.data_prep.sources import test_sample
from tests.pipeline.analysis import made_runs
from tests.pipeline.sharing import runs
from tests.pipeline.tasks import task_files
from tests.pipeline.workers import processes
from tests.pipeline.workers.modes import train_each

pytestmark = pytest.mark.slow

UMASKS = (0o027, 0o002)
"""What is wrong under the usual 0o022 is wrong under one of these, and not the other way round."""


def data_prep(*words):
    return lambda: data_prep_command.main([str(word) for word in words])


def of(main, *words):
    return lambda: main([str(word) for word in words])


# Each: the command that writes into `out`, of (made, out).
COMMANDS = {
    "sample": lambda m, out: data_prep("sample", "--out", out),
    "extract": lambda m, out: data_prep(
        "extract", "--source", "books", "--input", m.text, "--out", out, "--held-out", "0.1"
    ),
    "vocab": lambda m, out: data_prep(
        "vocab", "--documents", m.documents, "--out", out / "v.model", "--size", "200"
    ),
    "shards": lambda m, out: data_prep(
        "shards", "--documents", m.documents, "--vocab", m.vocabulary, "--out", out, "--max-seq-length", "64"
    ),
    "stats": lambda m, out: data_prep("stats", m.train, "--out", out),
    "export": lambda m, out: of(export.main, "--run", m.run, "--out", out),
    "export --all": lambda m, out: of(export.main, "--run", m.run, "--out", out, "--all"),
    "tables": lambda m, out: of(evaluate.main, "tables", "--runs", m.run, "--out", out, "--tables", "6"),
    "compare": lambda m, out: of(evaluate.main, "compare", "--runs", m.tuned, "--out", out),
    "ensemble": lambda m, out: of(evaluate.main, "ensemble", "--runs", m.tuned, "--out", out),
    "reproduce": lambda m, out: of(
        reproduce.main, "2", "--scale", "tiny", "--data-root", m.root / "glue", "--out", out
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(corpus, tmp_path_factory):
    """Inputs of every command, and the runs that were trained under each umask."""
    root = tmp_path_factory.mktemp("made")
    run = runs.metrics(runs.pretraining(root / "run", corpus.vocabulary, (1, 2)), {1: 6.0, 2: 5.0})
    for number in range(2):
        tuned = made_runs.finetuning(root / "tuned" / f"rte-{number}", "rte", "x", {})
        made_runs.logits(tuned, "dev", 15, 5)
    task_files.write_all(root)
    (root / "text.txt").write_text("Badofi gukela. Monipu.\n" * 40)
    archives = test_sample.archives(root)
    (root / "sample").mkdir()
    sample.write_sample(*archives.values(), root / "sample")
    return SimpleNamespace(
        root=root, run=run, tuned=root / "tuned", text=root / "text.txt", archives=archives,
        sample_digest=sample.digest(root / "sample"), **vars(corpus),
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(made, tmp_path_factory):
    """The directory with the runs of `pretrain` and `finetune` under each umask."""
    scratch = tmp_path_factory.mktemp("trained")
    commands = []
    for umask in UMASKS:
        place = scratch / f"{umask:03o}"
        steps = ("--steps", "2", "--warmup-steps", "0")
        place.mkdir()
        optimizer = {"type": "Lamb", "params": {"lr": 0.01}}
        (place / "config.json").write_text(
            json.dumps({
                "train_batch_size": 4, "optimizer": optimizer, "zero_optimization": {"stage": 1},
            })
        )  # fmt: skip
        pretrain = (
            "--model", "albert-tiny", "--data", made.train, "--eval-data", made.held_out, "--deepspeed_config",
            place / "config.json", "--output", place / "pretrain", "--eval-batches", "1", "--eval-interval", "1",
            "--save-interval", "1",
            "--model-args", "hidden_size=16", "num_attention_heads=2", "intermediate_size=16", "embedding_size=8",
        )  # fmt: skip
        finetune = (
            "--task", "rte", "--init", made.run, "--data", made.root / "glue", "--output", place / "finetune",
            "--batch-size", "4",
        )  # fmt: skip
        commands += [
            (umask, name, [str(word) for word in (*words, *steps)])
            for name, words in (("pretrain", pretrain), ("finetune", finetune))
        ]
    for status, stderr in processes.run(1, train_each, commands, scratch=scratch):
        assert status == 0, stderr
    return scratch


@contextlib.contextmanager
def under(umask):
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def other_modes(directory, umask):
    """Each file and directory below whose mode is not that of the umask, with its mode."""
    found = []
    for path in sorted(directory.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o777 if path.is_dir() else 0o666) & ~umask:
            found.append((path.relative_to(directory).as_posix(), oct(mode)))
    return found


@pytest.mark.parametrize("umask", UMASKS, ids=lambda umask: f"{umask:03o}")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_with_the_modes_of_the_umask(made, tmp_path, monkeypatch, name, umask):
    monkeypatch.setattr(sample, "fetch", lambda archive, scratch: made.archives[archive.requirement.partition("==")[0]])
    monkeypatch.setattr(sample, "SAMPLE_DIGEST", made.sample_digest)
    writes = Command("sample", (sys.executable, "-c", "print('log')"), None)
    monkeypatch.setattr(reproduce, "stages", lambda *arguments: [[writes]])
    out = tmp_path / "out"
    with under(umask):
        out.mkdir()
        assert COMMANDS[name](made, out)() in (0, None)
    assert any(path.is_file() for path in out.rglob("*"))
    assert other_modes(tmp_path, umask) == []


@pytest.mark.parametrize("umask", UMASKS, ids=lambda umask: f"{umask:03o}")
@pytest.mark.parametrize("name", ["pretrain", "finetune"])
def test_a_run_has_the_modes_of_the_umask(trained, name, umask):
    run = trained / f"{umask:03o}" / name
    assert (run / "export" / "model.safetensors").exists()
    assert list(run.glob("checkpoints/*/rank-00000.safetensors"))
    assert any(path.is_file() for path in (run / "tensorboard").rglob("*"))
    assert other_modes(run, umask) == []


def test_another_mode_is_seen(tmp_path):
    (tmp_path / "secret").touch(0o600)
    with under(0o022):
        (tmp_path / "file").touch()
    assert other_modes(tmp_path, 0o022) == [("secret", "0o600")]
