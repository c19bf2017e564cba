"""Every measurement can be started: its imports exist, and a mistake in its command is one line with status 2."""

import importlib
from pathlib import Path

import pytest

import benchmarks

MODULES = sorted(path.stem for path in Path(benchmarks.__file__).parent.glob("*.py") if path.stem != "__init__")
HELPERS = {"examples", "measure", "report", "systems", "time_shares"}


def test_the_helpers_are_modules_without_a_command() -> None:
    assert set(MODULES) >= HELPERS
    assert not [name for name in HELPERS if hasattr(importlib.import_module(f"benchmarks.{name}"), "main")]


@pytest.mark.parametrize("name", [name for name in MODULES if name not in HELPERS])
def test_a_mistake_in_a_command_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"benchmarks.{name}").main(["--nothing"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown argument --nothing; ")
    assert error.count("\n") == 1
