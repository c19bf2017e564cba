"""The short tier of the fuzzer, and whether its runner sees what a command must not do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = 15
BAD = """
import os, sys
from dataclasses import dataclass
from pathlib import Path
from tests.fuzz import runner
from tests.fuzz.commands import Command

root = Path(sys.argv[1]) / "inputs"

@dataclass(frozen=True)
class Bad(Command):
    def run(self, root):
        exec(self.words)
        return self.status

def fault_of(words, persons=()):
    (root / "out").mkdir(parents=True, exist_ok=True)
    for path in (root / "file", root / "out" / "file"):
        path.write_text("of a person")
    return runner.judge(Bad("bad", words, ""), root, root.parent, runner.Change("", persons)).fault

Bad.status = 0
assert fault_of("(root / 'out' / 'file').write_text('')") == ""
assert "changed outside" in fault_of("(root / 'file').write_text('')")
assert "changed outside" in fault_of("(root / 'file').unlink()")
assert "changed outside" in fault_of("Path('new').touch()")
assert "changed outside" in fault_of("(root / 'out' / 'file').write_text('')", [root / "out" / "file"])
assert "SIGABRT" in fault_of("os.abort()")
assert "KeyError" in fault_of("{}['a']")
Bad.status = 2
assert fault_of("print('error: a', file=sys.stderr)") == ""
assert "status 2 with 0 lines" in fault_of("pass")
assert "status 2 with 2 lines" in fault_of("print('error: a\\\\nerror: b', file=sys.stderr)")
Bad.status = 3
assert "status 3" in fault_of("pass")
runner.MEMORY_LIMIT = 1
assert "GiB" in fault_of("pass")
"""


def run(*words: object) -> None:
    """Runs Python in a process of its own: a fork of one in which libraries have started threads may crash."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_ends_well_or_with_one_line() -> None:
    run("-m", "tests.fuzz", "--cases", CASES)


def test_the_runner_sees_what_a_command_must_not_do(tmp_path: Path) -> None:
    run("-c", BAD, tmp_path)
