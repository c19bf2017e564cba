"""Every measurement can be started: its imports exist, and a mistake in its command is one line with status 2."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.shared.namespaces import REPOSITORY

MODULES = sorted(path.stem for path in (REPOSITORY / "benchmarks").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_a_mistake_in_a_command_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"benchmarks.{name}").main(["--nothing"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown argument --nothing; ")
    assert error.count("\n") == 1


# What a user of the packages lacks, as `make environment` leaves it.
WITHOUT = """
import runpy, sys
sys.modules |= dict.fromkeys(("transformers", "pytest", "hypothesis", "accelerate"))
module, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("gpu", ["--device", "cpu", "--scale", "tiny", "--part", "tests-kernels"]),
        ("train_step", ["--data", "shards"]),
        ("encoders", ["--init", "model", "--data", "glue", "--out", "out"]),
    ],
)
def test_a_missing_package_of_developers_is_one_line(module: str, words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, f"benchmarks.{module}", *words]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert re.fullmatch(
        r"error: transformers\b.*: not installed here; pip install -r requirements-dev.txt\n", ended.stderr
    )
    assert list(tmp_path.iterdir()) == []
