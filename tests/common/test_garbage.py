"""The garbage collector is stopped while a command imports, works afterwards, and leaves programs alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AT_THE_END = """
import atexit, gc
atexit.register(lambda: print("collects:", gc.isenabled()))
"""
PROGRAM = """
import gc
import pipeline, data_prep
from common import garbage

print(gc.isenabled())
with garbage.importing():
    print(gc.isenabled())
"""


def run(directory: Path, *words: str) -> list[str]:
    """Runs Python in this repository, with the modules of `directory`. What it prints."""
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    ended = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    return ended.stdout.splitlines()


@pytest.mark.parametrize("words", [("pipeline",), ("pipeline.show", "nowhere"), ("data_prep", "verify", "nowhere")])
def test_the_collector_works_once_a_command_has_begun(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "sitecustomize.py").write_text(AT_THE_END)
    assert run(tmp_path, "-m", *words)[-1] == "collects: True"


def test_the_collector_is_stopped_while_a_command_imports(tmp_path: Path) -> None:
    """`--help` ends a command before it has begun."""
    (tmp_path / "sitecustomize.py").write_text(AT_THE_END)
    assert run(tmp_path, "-m", "pipeline", "--help")[-1] == "collects: False"


def test_large_packages_are_imported_without_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc

    from common import garbage

    monkeypatch.setattr(garbage, "_in_command", True)
    try:
        with garbage.importing():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_program_that_imports_the_packages_keeps_its_collector(tmp_path: Path) -> None:
    package = tmp_path / "mytool"
    package.mkdir()
    (package / "__init__.py").write_text("import pipeline")
    (package / "__main__.py").write_text(PROGRAM)
    assert run(tmp_path, "-m", "mytool") == ["True", "True"]
    assert run(tmp_path, "-c", PROGRAM) == ["True", "True"]
