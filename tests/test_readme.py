"""The README does what it says: its two commands run, its other commands parse, its files exist."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AlbertForPreTraining, AutoTokenizer

from data_prep.__main__ import parse as parse_job
from pipeline import evaluate, finetune_settings, reproduce, settings

REPOSITORY = Path(__file__).resolve().parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in README.splitlines() if line.startswith("    ") and not line.startswith("     ")]


def make(target, *variables):
    """Runs make with this environment, whose packages are the pinned ones."""
    environment = Path(sys.executable).parent.parent
    return subprocess.run(
        ["make", "--no-print-directory", target, f"VENV={environment}", *variables],
        cwd=REPOSITORY, env=os.environ | {"MAKEFLAGS": ""}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_the_two_commands_stand_first():
    assert COMMANDS[:2] == ["make demo", "make test"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory, sample_corpus):
    """`make demo` with few steps, on a sample that is fetched once for all tests."""
    directory = tmp_path_factory.mktemp("demo")
    (directory / "sample").symlink_to(sample_corpus)
    result = make("demo", f"DEMO={directory}", "DEMO_STEPS=30")
    assert result.returncode == 0, result.stdout + result.stderr
    return directory, result


def test_the_demo_shows_its_commands_and_ends_with_the_table(demo):
    _, result = demo
    for command in ("extract --source wikipedia", "vocab", "mpirun -n 2 python -m data_prep shards", "verify"):
        assert command in result.stdout
    assert "deepspeed" in result.stdout
    for row in (
        "held-out MLM loss",
        "unigram entropy",
        "held-out SOP accuracy",
        "95 % interval",
        "tensorboard --logdir",
    ):
        assert row in result.stdout
    assert "warning" not in (result.stdout + result.stderr).lower()


def test_the_demo_s_model_and_shards_open_elsewhere(demo):
    directory, _ = demo
    model = AlbertForPreTraining.from_pretrained(directory / "albert-tiny").eval()
    tokenizer = AutoTokenizer.from_pretrained(directory / "albert-tiny")
    words = tokenizer("To be, or not to be: that is the question.", return_tensors="pt")
    with torch.no_grad():
        assert torch.isfinite(model(**words).prediction_logits).all()
    shard = Dataset.from_file(str(directory / "shards" / "train" / "shard-00000.arrow"))
    assert len(shard) > 100
    assert max(shard[0]["tokens"]) < 2000


def test_a_second_demo_has_nothing_to_do(demo):
    directory, _ = demo
    model = directory / "run" / "done"
    before = model.stat().st_mtime_ns
    result = make("demo", f"DEMO={directory}", "DEMO_STEPS=30")
    assert result.returncode == 0, result.stdout + result.stderr
    # sample, two extracts, vocabulary, two sets of shards, the run
    assert (result.stdout + result.stderr).count("nothing to do") >= 7
    assert model.stat().st_mtime_ns == before


@pytest.mark.parametrize("command", [line for line in COMMANDS if "data_prep" in line])
def test_data_commands_parse(command):
    words = shlex.split(command)
    parse_job(words[words.index("data_prep") + 1 :])


@pytest.mark.parametrize("command", [line for line in COMMANDS if "pipeline.pretrain" in line])
def test_training_commands_parse_and_name_files_that_exist(command):
    words = shlex.split(command)
    args = settings.parse(words[words.index("pipeline.pretrain") + 1 :])
    assert (REPOSITORY / args.deepspeed_config).is_file()


@pytest.mark.parametrize(
    ("module", "parser"),
    [
        ("pipeline.finetune", finetune_settings.parser),
        ("pipeline.evaluate", evaluate.parser),
        ("pipeline.reproduce", reproduce.parser),
    ],
)
def test_commands_of_fine_tuning_parse(module, parser):
    (words,) = (shlex.split(line) for line in COMMANDS if module in line)
    parser().parse_args(words[words.index(module) + 1 :])


def test_every_file_that_the_documents_name_exists():
    for page in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
        for name in re.findall(r"`((?:pipeline|model|data_prep|tests|benchmarks|ds_configs)/[\w/.]*)`", text):
            assert (REPOSITORY / name).exists(), f"{page.name} names {name}"


def test_the_code_imports_in_one_direction_only():
    allowed = {"data_prep": {"data_prep"}, "model": {"model"}, "pipeline": {"pipeline", "model", "data_prep"}}
    for package, targets in allowed.items():
        for path in (REPOSITORY / package).rglob("*.py"):
            found = re.findall(r"^\s*(?:from|import) (data_prep|model|pipeline)\b", path.read_text(), re.MULTILINE)
            assert set(found) <= targets, path
