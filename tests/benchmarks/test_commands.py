"""Every measurement can be started: its imports exist, and a mistake in its command is one line with status 2."""

import importlib
import importlib.metadata
import subprocess
import sys

import pytest

from benchmarks.shared.namespaces import REPOSITORY

MODULES = sorted(path.stem for path in (REPOSITORY / "benchmarks").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_a_mistake_in_a_command_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"benchmarks.{name}").main(["--nothing"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown argument --nothing; ")
    assert error.count("\n") == 1


@pytest.mark.slow
def test_the_study_needs_no_package_of_developers() -> None:
    """`make study` installs requirements.txt only. setuptools is in every new environment."""
    lines = (REPOSITORY / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    developers = {line.partition("==")[0] for line in lines if "==" in line} - {"setuptools"}
    owners = importlib.metadata.packages_distributions().items()
    hidden = sorted(name for name, distributions in owners if developers & set(distributions))
    assert "transformers" in hidden
    code = f"import sys; sys.modules.update(dict.fromkeys({hidden!r}))\n"
    code += "import benchmarks.study.__main__"
    ended = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
