"""Runs a command of pipeline.pretrain several times, with other lengths, in one process."""

import shutil
from pathlib import Path

from tests.pipeline.workers.runs import Ended, run_each, run_one


def lengthen(command: list[str], init: Path, output: Path, undisturbed: Path) -> dict[str, Ended]:
    """Trains 4 steps, then to 10 steps: stopped after step 6 and resumed in `output`, without a stop in `undisturbed`.

    After the first start the directory of the initial model is gone.

    Args:
        command: of pipeline.pretrain, without --steps, --init and --output.
        init: directory for --init.
        output: of the stopped run.
        undisturbed: of the other run.
    """

    def words(steps: int, place: Path = output) -> list[str]:
        return [*command, "--init", str(init), "--output", str(place), "--steps", str(steps)]

    ended = {"first": run_one(words(4))}
    shutil.move(init, init.with_name("gone"))
    ended["again"] = run_one(words(4))
    shutil.copytree(output, undisturbed)
    (ended["stopped"],) = run_each([(words(10), 6)])
    ended["resumed"] = run_one(words(10))
    ended["undisturbed"] = run_one(words(10, undisturbed))
    return ended
