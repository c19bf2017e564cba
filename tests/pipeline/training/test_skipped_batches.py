"""A person goes back to an older checkpoint and leaves batches out, as docs/troubleshooting.md tells it."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, blocks_of
from tests.pipeline.outcome import differences, outcome
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import Ended, run_each

FLAGS = ("--log-interval", "1")
BACK, UNDISTURBED = Run("back", 1, 12, flags=FLAGS), Run("undisturbed", 1, 12, flags=(*FLAGS, "--skip-batches", "5-6"))
LAST = "step-00000006"


def recipe(run: Path) -> list[str]:
    """The commands of the page, for the directory of this run."""
    blocks = list(blocks_of(REPOSITORY / "docs" / "troubleshooting.md"))
    heading = next(n for n, block in enumerate(blocks) if "## Going back to an older checkpoint" in block.lines)
    commands = "\n".join(next(block for block in blocks[heading:] if block.kind == "code").lines)
    commands = commands.replace("\\\n", " ")
    for shown, here in (("runs/base", str(run)), ("step-00125000", LAST), ("124300-124320", "5-6")):
        assert shown in commands
        commands = commands.replace(shown, here)
    return commands.splitlines()


def go_back(command: list[str], run: Path, undisturbed: list[str]) -> list[Ended]:
    """Stops a run after step 6, follows the recipe, stops again after step 8, and resumes it without the flag."""
    (first,) = run_each([(command, 6)])
    *moves, again = recipe(run)
    subprocess.run("\n".join(["set -e", *moves]), shell=True, check=True)
    flag = again.index("--skip-batches")  # before it, the page has the command of its example
    return [first, *run_each([([*command, *shlex.split(again[flag:])], 8), (command, None), (undisturbed, None)])]


@pytest.mark.slow
def test_the_recipe_ends_as_a_run_that_has_left_the_batches_out_from_the_beginning(corpus, tmp_path):
    run, undisturbed = tmp_path / BACK.name, tmp_path / UNDISTURBED.name
    commands = BACK.command(corpus, tmp_path), run, UNDISTURBED.command(corpus, tmp_path)
    ends = processes.run(1, go_back, *commands, scratch=tmp_path)
    assert [end.status for end in ends] == [75, 75, 0, 0], ends
    assert "resuming from step 4" in ends[1].stdout
    assert "resuming from step 8" in ends[2].stdout
    assert all("batches 5 to 6 are left out" in end.stdout for end in ends[1:])
    assert differences(run, undisturbed) == []
    passed_over = [record.get("batches_passed_over", 0) for record in outcome(run)[0] if record["split"] == "train"]
    assert passed_over == [0] * 4 + [2] * 6
    assert (tmp_path / f"{BACK.name}-aside" / LAST / "state.json").exists()
