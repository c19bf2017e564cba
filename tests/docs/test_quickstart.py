"""What new readers try does what it says: docs/quickstart.md, README's own text, and the rehearsal of a cluster.

The commands and files are taken from the pages. The commands run one after the other, on a small corpus and with few
steps, in a directory that looks like a checkout, so no path in them changes. Only what decides the size is replaced, by
the table SMALLER. The launcher gets a free port, because another job may use DeepSpeed's default one. Only `make` and
pre-training run in a shell; all other modules are forked from a process that has imported torch and DeepSpeed.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline import plan
from pipeline.distributed.rendezvous import reserve_port
from tests.docs.pages import REPOSITORY, blocks_of, commands_of, module_command
from tests.pipeline.conftest import sentences
from tests.pipeline.workers import forked

pytestmark = pytest.mark.slow

PAGE, README, CLUSTER = (REPOSITORY / name for name in ("docs/quickstart.md", "README.md", "docs/cluster.md"))
LOCKS = sorted(REPOSITORY.glob("requirements*.lock"))

SMALLER = {
    # It is there; it must not be made anew.
    "make environment": " ".join(["make", *(f"--old-file={path.name}" for path in LOCKS), "environment"]),
    "deepspeed --quiet": f"deepspeed --quiet --master_port {reserve_port()}",
    "--model albert-base": "--model albert-tiny",
    "--held-out 0.02": "--held-out 0.15",
    "--size 30000": "--size 200",
    "--size 2000": "--size 200",
    "--save-interval 50": "--save-interval 2",
    "--vocab vocabulary.model": "--vocab vocabulary.model --max-seq-length 64",
    "--steps 20000": "--steps 4 --log-interval 1 --eval-interval 2",
    "--save-interval 1000": "--save-interval 2",
    "--steps 2000": "--steps 4",
}
SMALLER_BATCH = {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 8}

COMMANDS = [command for _, command in commands_of(PAGE)]
SETUP = [command for command in COMMANDS if command.startswith(("source ", "export "))]


def smaller(command: str) -> str:
    """A command of the page, as it is run here."""
    if "pipeline.plan" in command:
        return command
    for theirs, ours in SMALLER.items():
        command = re.sub(rf"(?<!\S){re.escape(theirs)}(?!\S)", ours, command)
    return re.sub(r"^deepspeed ", f"deepspeed --master_port {reserve_port()} ", command)


def code(language: str, page: Path = PAGE) -> str:
    """The one block of a language on a page."""
    (block,) = (block for block in blocks_of(page) if block.language == language)
    return "\n".join(block.lines)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of quickstart.md: the reader's own texts, and the file that the page has saved."""
    directory = make_checkout(tmp_path_factory.mktemp("quickstart"))
    rng = np.random.default_rng(0)
    records = [{"text": "\n".join(" ".join(sentences(rng, 12)) for _ in range(6))} for _ in range(30)]
    (directory / "articles.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (directory / "SST-2").mkdir()
    for split, count in (("train", 64), ("dev", 20)):
        rows = [f"{sentence}\t{number % 2}\n" for number, sentence in enumerate(sentences(rng, count))]
        (directory / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    (directory / "one-gpu.json").write_text(code("json"))
    return directory


def make_checkout(directory: Path) -> Path:
    """Makes the directory one with the repository's files and texts of the reader's."""
    packages = ("albert_pretraining", "common", "data_prep", "model", "pipeline", "ds_configs")
    for name in ("Makefile", *(path.name for path in LOCKS), *packages):
        (directory / name).symlink_to(REPOSITORY / name)
    (directory / ".venv").symlink_to(sys.prefix)
    rng = np.random.default_rng(1)
    (directory / "text").mkdir()
    for number in range(30):
        paragraphs = [" ".join(sentences(rng, 12)) for _ in range(6)]
        (directory / "text" / f"{number}.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def printed(checkout: Path) -> dict[str, str]:
    """Runs the page from its first command to its last, and gives what each printed."""
    output = {}
    for command in COMMANDS:
        if command in SETUP or command.startswith("tensorboard "):
            continue
        if "pipeline.pretrain" in command:
            (checkout / "one-gpu.json").write_text(json.dumps(json.loads(code("json")) | SMALLER_BATCH))
        output[command] = _run(checkout, smaller(command))
    return output


def environment_of_a_reader() -> dict[str, str]:
    """The variables without what tests set."""
    return {n: value for n, value in os.environ.items() if n not in ("DS_ACCELERATOR", "MAKEFLAGS", "MAKELEVEL")}


def _run(checkout: Path, command: str, setup: Sequence[str] = tuple(SETUP)) -> str:
    """What a command prints. A launcher and `make` run in a shell, which has made the page's settings."""
    environment = environment_of_a_reader()
    found = module_command(command)
    if found is not None and "pipeline.pretrain" not in command:
        environment |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        result = forked.run_module(*found, checkout, environment, timeout=1500)
    else:
        shell = ["bash", "-euo", "pipefail", "-c", "\n".join([*setup, command])]
        result = subprocess.run(
            shell, cwd=checkout, env=environment, capture_output=True, text=True, timeout=1500, check=False
        )
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def test_each_command_prints_what_the_page_says(printed, checkout, capsys):
    for part, shown in {
        "pipeline.plan": ("11.76 GB", "20,000 steps: 0.5 days, 11 GPU-hours"),
        "data_prep stats": ("tokens a document",),
        "pipeline.show": ("[MASK]",),
        "pipeline.pretrain": ("epochs of",),
        "evaluate summary": ("held-out MLM loss", "unigram entropy"),
        "pipeline.export": ("Hugging Face",),
        "evaluate compare": ("sst2",),
    }.items():
        (output,) = (output for command, output in printed.items() if part in command)
        assert all(text in output for text in shown), part
    (command,) = (command for command in COMMANDS if "pipeline.plan" in command)
    (checkout / "page.json").write_text(code("json"))
    words = command.replace("--gpu a10", "--gpu h100").replace("one-gpu.json", str(checkout / "page.json")).split()
    assert plan.main(words[words.index("pipeline.plan") + 1 :]) == 0
    assert ", 1 GPU-hours" in capsys.readouterr().out
    assert list((checkout / "runs").glob("*/tensorboard/events*"))
    assert (checkout / "runs" / "mine-sst2" / "export" / "config.json").is_file()


def test_the_exported_model_fills_a_mask(printed, checkout, monkeypatch, capsys):
    monkeypatch.chdir(checkout)
    exec(compile(code("python"), PAGE.name, "exec"), {})
    assert capsys.readouterr().out.strip()


def test_own_text_on_a_laptop_and_the_rehearsal_of_a_cluster(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path)
    commands = [command for _, command in commands_of(README, "## Your own text on a laptop")]
    setup = [command for command in commands if command.startswith(("source ", "export "))]
    output = [_run(checkout, smaller(command), setup) for command in commands if command not in setup]
    assert len(re.findall(r"^ +\d+\.\d %  \S+$", output[-1], re.MULTILINE)) == 3
    in_python = [sys.executable, "-c", code("python", README)]
    printed = subprocess.check_output(in_python, cwd=checkout, env=os.environ | {"DS_ACCELERATOR": "cpu"}, text=True)
    assert re.fullmatch(r"(\S+)\n\(2, 128\)\n\1\n", printed)  # transformers finds the same piece

    *setup, launcher = (command for _, command in commands_of(CLUSTER, "## Rehearse it on a laptop"))
    setup = ["source .venv/bin/activate", *setup]
    first = smaller(launcher)
    shells = [["bash", "-euc", "\n".join([*setup, first.replace("--node_rank 0", f"--node_rank {n}")])] for n in (0, 1)]
    options = {"cwd": checkout, "env": environment_of_a_reader(), "text": True}
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    nodes = [subprocess.Popen(shell, **options) for shell in shells]
    said = [node.communicate(timeout=1500)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert "accumulated x 2 ranks" in said[0]
    assert said[1] == ""
