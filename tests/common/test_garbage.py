"""The garbage collector is stopped while a command imports, works afterwards, and leaves programs alone."""

import subprocess
import sys
from pathlib import Path

STATES = """
import gc, sys
from common import garbage

sys.argv = {arguments}
garbage.wait_for_work()
print(gc.isenabled())
garbage.begin_work()
print(gc.isenabled(), gc.get_freeze_count() > 0)
with garbage.importing():
    print(gc.isenabled())
print(gc.isenabled())
"""


def states(arguments: list[str]) -> list[str]:
    code = STATES.format(arguments=arguments)
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split()


def test_a_command() -> None:
    assert states(["-m"]) == ["False", "True", "True", "False", "True"]


def test_a_program_that_imports_the_packages() -> None:
    assert states(["program.py"]) == ["True", "True", "False", "True", "True"]
