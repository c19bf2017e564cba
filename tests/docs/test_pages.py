"""The commands of the pages run, in the order in which a reader would give them, on small files and with few steps.

They are read from the pages and run in a directory that looks like a checkout, so no path in them changes. Only what
decides the size is replaced, by the table SMALLER. What is not run here has its reason in the tables SKIPPED, by how
the command begins, and ELSEWHERE, by the test that runs it. Each command is a process that is forked from one that has
imported torch and DeepSpeed; the launchers are tested with docs/quickstart.md and docs/cluster.md.
"""

import bz2
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.data_prep import foreign_pages
from tests.docs.pages import REPOSITORY, commands_of, module_command
from tests.pipeline.conftest import sentences
from tests.pipeline.pretraining import trained_models
from tests.pipeline.tasks import own_files, task_files
from tests.pipeline.workers import forked, killed_runs

pytestmark = pytest.mark.slow

NAMES = ("data", "training", "monitoring", "finetuning", "own_tasks", "experiments", "continuing")
PROGRAMS = ("python", "deepspeed", "mpirun", "srun", "bash", "tensorboard", "export")
"""A line of code that begins with another word is no command."""

SKIPPED = {
    "srun": "needs Slurm",
    "tensorboard": "serves until it is stopped",
    "bash -e table.sh": "trains all rows of a table of the paper",
    "python -m benchmarks.": "tests/benchmarks runs what is in benchmarks/",
}
OWN_TASKS = "tests/pipeline/finetuning/test_own_tasks.py"
DISTILLATION = "tests/benchmarks/test_encoders.py"
ELSEWHERE = {
    f"python -m pipeline.finetune --task {task}": OWN_TASKS
    for task in ("pairs", "multi-label", "regression", "tagging", "multiple-choice")
} | {
    "deepspeed --module pipeline.pretrain --config examples/run.yaml": "tests/pipeline/settings/test_declare.py",
    "python -m data_prep shards --documents documents/wikipedia --vocab all-MiniLM-L6-v2": DISTILLATION,
    "deepspeed --quiet --module pipeline.pretrain --teacher": DISTILLATION,
}

SMALLER = {
    "mpirun -n 16 ": "",  # tests/data_prep/test_mpi.py has the ranks
    "--model albert-base": "--model albert-tiny",
    "ds_configs/base.json": "small.json",
    "ds_configs/demo.json": "small.json",
    "--held-out 0.002": "--held-out 0.15",
    "--size 30000": "--size 200",
    "--max-seq-length 128": "--max-seq-length 32",
    "--max-seq-length 512": "--max-seq-length 64",
    "--steps 20000": "--steps 5",
    "--steps 30000": "--steps 7",
    **{f"--steps {number}": "--steps 3" for number in (10000, 112500, 12500, 2400, 800)},
    "--input HuggingFaceFW/fineweb-edu --subset sample-10BT": "--input web",
    "runs/base-squad2": "runs/answers",  # a task on own files has the same model
    "--input - ": "--input new.csv ",  # tests/pipeline/finetuning/test_own_tasks.py has the pipe
    # Names in capitals are the reader's.
    "DIR... [--random DIR...]": "runs",
}
ADDED = {
    "data_prep vocab": ("--size", "200"),
    "data_prep shards": ("--max-seq-length", "64"),
    "pipeline.pretrain": ("--steps", "3"),
    "pipeline.finetune": ("--steps", "2", "--max-length", "48", "--batch-size", "8"),
}
"""Flags by command, unless it has the first one."""
CONFIG = killed_runs.CONFIG | {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 8}


def commands() -> list[tuple[str, str]]:
    """(page and block, command) of the commands of all pages that neither table names."""
    return [
        (f"{name}, line {line}", command)
        for name in NAMES
        for line, command in commands_of(REPOSITORY / "docs" / f"{name}.md")
        if command.split()[0] in PROGRAMS and not command.startswith((*SKIPPED, *ELSEWHERE))
    ]


def words_of(command: str) -> tuple[str, list[str]]:
    """The module and the arguments with which a command is run here."""
    for theirs, ours in SMALLER.items():
        command = command.replace(theirs, ours)
    found = module_command(command)
    assert found is not None, command
    module, words = found
    for start, flags in ADDED.items():
        if f"{module} {words[0]} ".startswith(f"{start} ") and flags[0] not in words:
            words += flags
    return module, words


@pytest.fixture(scope="module")
def checkout(corpus: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the packages and with every file of a reader's that the pages name."""
    root = tmp_path_factory.mktemp("pages")
    for name in ("common", "data_prep", "model", "pipeline"):
        (root / name).symlink_to(REPOSITORY / name)
    (root / "small.json").write_text(json.dumps(CONFIG))
    for name in ("shards", "models", "saved-again", "gutenberg", "runs"):
        (root / name).mkdir()
    for name in ("shards/wikipedia", "shards/books", "general", "api"):
        shutil.copytree(corpus.train, root / name)
        shutil.copytree(corpus.held_out, root / f"{name}_held_out")
    shutil.copytree(corpus.documents, root / "documents")
    (root / "documents" / "text").symlink_to(corpus.documents)
    (root / "vocabulary.model").symlink_to(corpus.vocabulary)
    rng = np.random.default_rng(0)
    texts = ["\n\n".join(" ".join(sentences(rng, 10)) for _ in range(5)) for _ in range(40)]
    for number, text in enumerate(texts):
        (root / "gutenberg" / f"{number}.txt").write_text(text)
    (root / "web").mkdir()
    rows = ({"id": f"page-{number}", "score": number % 5, "text": text} for number, text in enumerate(texts))
    (root / "web" / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for language in ("en", "de"):
        dump = foreign_pages.export(replace(foreign_pages.WIKIS[0], language=language), texts).encode()
        (root / f"{language}wiki-latest-pages-articles.xml.bz2").write_bytes(bz2.compress(dump))
    published = trained_models.export(root / "albert-base-v2", corpus.vocabulary)
    (root / "models" / "all-MiniLM-L6-v2").symlink_to(published)
    shutil.copyfile(published / "tokenizer.json", root / "saved-again" / "tokenizer.json")
    (root / "blimp" / "data").mkdir(parents=True)
    (root / "blimp" / "data" / "order.jsonl").write_text('{"good": "ba do fi", "bad": "fi do ba"}\n')
    task_files.write_all(root / "tasks")
    (root / "GLUE").symlink_to(root / "tasks" / "glue")
    own_files.write_all(root)
    own_files.write(root / "new.csv", {"text": ["A text.", "Another one."]})
    own_files.write(root / "sentences.csv", {"text": ["A text.", "Another one."]})
    own_files.write(root / "questions.jsonl", {"question": ["What is it?"], "context": ["It is a text."]})
    return root


def test_the_commands_of_the_pages_run(checkout: Path) -> None:
    made: dict[str, str] = {}  # where an output of a job was made
    variables = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    for place, command in commands():
        module, words = words_of(command)
        if module == "data_prep":
            out = words[words.index("--out") + 1] if "--out" in words else ""
            if made.setdefault(out, place) != place:  # another block of code shows another way to make it
                shutil.rmtree(checkout / out)
                made[out] = place
        result = forked.run_module(module, words, checkout, variables, timeout=1500)
        assert result.returncode == 0, f"{place}: {command}\n{words}\n{result.stdout}{result.stderr}"
        assert result.stdout, f"{place}: {command}"
