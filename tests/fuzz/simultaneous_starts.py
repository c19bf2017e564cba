"""Two commands of the same kind, started on one output at the same moment.

Either both end with whole results, or one works and the other says in one line who does. Which of these it is depends
on the moment; that it is one of them does not.
"""

import os
import re
import shutil
import sys
import traceback

import pytest

from tests.fuzz.commands import COMMANDS

pytestmark = pytest.mark.slow

NAMES = (*("extract goes on", "vocab", "shards", "export", "tables", "ensemble", "reproduce goes on", "pretrain"),)
REFUSALS = re.compile(
    r"error: (another process is writing to \S+ \(process \d+ on host \S+\); wait for it, or choose .*"
    r"|another command has trained in \S+ meanwhile; give this command again)\n"
)
SAME_BYTES = ("vocab", "shards", "export", "tables")
"""Commands whose files are the same each time."""


def run_together(command, root, place, number):
    """Status and error output of each of so many processes, which begin when all of them are there."""
    waits, begin = os.pipe()
    children = []
    for which in range(number):
        said = place / f"process-{which}.err"
        child = os.fork()
        if not child:
            os.close(begin)
            be_one(command, root, waits, said)
        children.append((child, said))
    os.close(waits)
    os.close(begin)  # now each of them reads the end of the pipe
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child, _ in children]
    return [(status, said.read_text()) for status, (_, said) in zip(statuses, children)]


def be_one(command, root, waits, said):
    """What each of the processes does; it never returns."""
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        os.read(waits, 1)
        status = command.run(command.arguments(root)) or 0
    except SystemExit as error:
        status = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def files_of(output):
    return {
        path.relative_to(output).as_posix(): path.read_bytes()
        for path in output.rglob("*")
        if path.is_file() and path.suffix != ".png" and "tensorboard" not in path.parts
    }


@pytest.mark.parametrize("name", NAMES)
def test_two_at_the_same_moment(valid, tmp_path, name):
    (command,) = (command for command in COMMANDS if command.name == name)
    root = shutil.copytree(valid, tmp_path / "inputs")
    ends = run_together(command, root, tmp_path, 2)
    assert 0 in [status for status, _ in ends], ends
    for status, said in ends:
        assert status == 0 or (status == 2 and REFUSALS.fullmatch(said.splitlines(keepends=True)[-1])), ends
    together = files_of(root / command.output)
    assert not list((root / command.output).parent.rglob("*.tmp"))
    if name in SAME_BYTES:
        alone = shutil.copytree(valid, tmp_path / "alone" / "inputs")
        alone.rename(tmp_path / "aside")
        root.rename(tmp_path / "done")
        (tmp_path / "aside").rename(root)
        assert [status for status, _ in run_together(command, root, tmp_path, 1)] == [0]
        assert together == files_of(root / command.output)
    else:
        assert [status for status, _ in run_together(command, root, tmp_path, 1)] == [0]
