"""The short tier: every command on valid inputs, and on some damaged ones."""

import pytest

from tests.fuzz import surroundings
from tests.fuzz.cases import try_case, try_valid, warm_up
from tests.fuzz.commands import COMMANDS

pytestmark = pytest.mark.slow

CASES = 2
WRITES_NOTHING = (
    *("vocab again", "verify shards", "verify documents", "show rows", "show", "checkpoint", "summary", "plan"),
    *("hostfile", "reproduce", "predict masks"),
)
"""Commands that need no place to write to, for these inputs."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_ends_well_or_with_one_line(command, valid, tmp_path):
    assert try_valid(command, valid, tmp_path).fault == ""
    warm_up(tmp_path)
    results = [try_case(command, valid, tmp_path, seed) for seed in range(1 if command.slow else CASES)]
    assert [(result.case, result.verdict.fault) for result in results if result.verdict.fault] == []


@pytest.mark.skipif(not surroundings.can_mount(), reason="mounting needs root")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_place_that_cannot_be_written_is_one_line(command, valid, tmp_path):
    _, verdict = try_case(command, valid, tmp_path, 0, "read_only")
    assert (verdict.fault, verdict.status) == ("", 0 if command.name in WRITES_NOTHING else 2), verdict.printed
    assert verdict.status == 0 or "read-only file system" in verdict.printed.lower() or command.refuses
