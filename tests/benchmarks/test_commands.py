"""Every measurement can be started: its imports exist, and a mistake in its command is one line with status 2."""

import importlib
import os
import re
import subprocess
import sys

import pytest

from benchmarks import many_ranks
from benchmarks.shared import commands
from benchmarks.shared.texts import REPOSITORY

MODULES = sorted(path.stem for path in (REPOSITORY / "benchmarks").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_a_mistake_in_a_command_is_one_line(name, capsys):
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
        ("encoders", ["--init", "model", "--data", "glue", "--out", "out"]),
    ],
)
def test_a_missing_package_of_developers_is_one_line(module, words, tmp_path):
    command = [sys.executable, "-c", WITHOUT, f"benchmarks.{module}", *words]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert re.fullmatch(
        r"error: transformers\b.*: not installed here; pip install -r requirements-dev.txt\n", ended.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_may_fail_ends_nothing_and_is_not_run_again(tmp_path, capsys):
    def command(name, code, **more):
        (tmp_path / name).mkdir(exist_ok=True)
        return commands.Command(name, (sys.executable, "-c", code), tmp_path / name / "done", **more)

    write = "import pathlib, sys; pathlib.Path({!r}).touch(); sys.exit({})"
    bad = command("bad", write.format(str(tmp_path / "began"), 1), may_fail=True)
    good = command("good", write.format(str(tmp_path / "good" / "done"), 0))
    commands.run([(bad,), (good,)], tmp_path)
    assert "bad: failed, which counts as the worst result" in capsys.readouterr().out
    (tmp_path / "began").unlink()
    commands.run([(bad,), (good,)], tmp_path)
    assert capsys.readouterr().out == "bad: done before\ngood: done before\n"
    assert not (tmp_path / "began").exists()
    mistake = command("mistake", "raise SystemExit(2)", may_fail=True)
    with pytest.raises(SystemExit) as ended:
        commands.run([(mistake,), (good,)], tmp_path)
    assert ended.value.code == 2


@pytest.mark.slow
def test_it_prints_a_row_for_each_number_of_ranks(capsys):
    assert many_ranks.main(["--ranks", "3"]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    ranks, *milliseconds = (float(cell) for cell in row.strip("|").split("|"))
    assert ranks == 3
    assert len(milliseconds) == 3
    assert all(value >= 0 for value in milliseconds)
