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

    def words(steps: int | None, place: Path = output, *more: str) -> list[str]:
        length = [] if steps is None else ["--steps", str(steps)]
        return [*command, "--init", str(init), "--output", str(place), *length, *more]

    def run(steps: int | None, place: Path = output) -> Ended:
        return run_one(words(steps, place))

    ended = {"first": run(4)}
    shutil.move(init, init.with_name("gone"))
    ended["again"] = run(4)
    shutil.copytree(output, undisturbed)
    (ended["stopped"],) = run_each([(words(10), 6)])
    ended["before the old end"] = run(5)
    ended["resumed"] = run(10)
    ended["undisturbed"] = run(10, undisturbed)
    ended["again at the end"] = run(10)
    ended["too short"] = run(10 - 1)
    ended["without --steps"] = run(None)
    ended["without --init"] = run_one([*command, "--model", "albert-tiny", "--output", str(output), "--steps", "10"])
    return ended
