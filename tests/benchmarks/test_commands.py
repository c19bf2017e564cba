"""Every measurement can be started: its imports exist, and a mistake in its command is one line with status 2."""

import importlib
import importlib.metadata

import pytest

from benchmarks.shared.namespaces import REPOSITORY

MODULES = sorted(path.stem for path in (REPOSITORY / "benchmarks").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_a_mistake_in_a_command_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"benchmarks.{name}").main(["--nothing"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown argument --nothing; ")
    assert error.count("\n") == 1
