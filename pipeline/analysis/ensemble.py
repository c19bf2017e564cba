"""Averages the predictions of several runs (section 4.9 of the paper, the ensembles of Tables 9 and 10)."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic, outputs
from pipeline.analysis.finished_runs import TaskRun, find_runs, member_directories, read_predictions
from pipeline.checkpoint.run_records import RESULTS
from pipeline.tasks.own_tasks import record_of
from pipeline.tasks.task import Task

COMMAND = "pipeline.evaluate ensemble"


def write_ensembles(places: Sequence[Path], out: Path, overwrite: bool = False) -> str:
    """Averages the runs of each task, with all their seeds, into `out/TASK`, which is laid out like a run.

    `out/TASK` gets `results.json`, `logits/` and `submission/`. Runs that are ensembles themselves are left out.

    Args:
        places: directories to search for runs.
        overwrite: see `outputs.check`.
    Returns:
        The metrics of the averages, for people.
    Raises:
        UserError: there is no run, a run has no logits, its task is unknown, runs of one task do not fit together, or
            `out/TASK` is not an ensemble.
    """
    by_task: dict[str, list[TaskRun]] = defaultdict(list)
    for run in find_runs(places):
        if not run.results.get("ensemble"):
            by_task[run.task.name].append(run)
    if not by_task:
        raise UserError("--runs holds no run to average; name --output directories of pipeline.finetune")
    for name, (first, *others) in by_task.items():
        outputs.check(out / name, COMMAND, overwrite=overwrite)
        if other := next((run for run in others if run.task != first.task), None):
            raise UserError(
                f"{first.directory} and {other.directory} are different tasks called {name}; name them with "
                "--task-name, or average runs of the same data"
            )
    lines = []
    for name, members in by_task.items():
        written = _write_ensemble(members[0].task, members, out / name, overwrite)
        lines.append(f"{name}: {written['members']} members, {out / name}")
        for split, metrics in written["metrics"].items():
            lines.append(f"  {split}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in metrics.items()))
    return "\n".join(lines)


def _write_ensemble(task: Task, runs: Sequence[TaskRun], out: Path, overwrite: bool) -> dict[str, Any]:
    directories = [member for run in runs for member in member_directories(run.directory)]
    splits: dict[str, list[Any]] = defaultdict(list)
    for directory in directories:
        for split, predictions in read_predictions(directory, task).items():
            splits[split].append(predictions)
    results: dict[str, Any] = {
        "task": task.name,
        **record_of(task),
        "ensemble": [str(run.directory.absolute()) for run in runs],
        "members": len(directories),
        "init": None,
        "random_weights": all(run.results.get("random_weights") for run in runs),
        "examples": {},
        "metrics": {},
    }
    with outputs.making(out, COMMAND, overwrite=overwrite) as place:
        (place / "logits").mkdir()
        (place / "submission").mkdir()
        for split, members in splits.items():
            if len(members) < len(directories):
                continue  # not every member predicted it
            try:
                mean = task.kind.predictions.average(members)
            except ValueError as error:
                names = ", ".join(map(str, directories))
                raise UserError(
                    f"{task.name}: {error} in split {split} of {names}; average runs of the same data"
                ) from None
            mean.save(place / "logits" / f"{split}{task.kind.ending}")
            task.write_submission(split, mean, place / "submission")
            results["examples"][split] = len(mean)
            if metrics := task.kind.metrics(task, mean):
                results["metrics"][split] = metrics
        atomic.write_text(place / RESULTS, json.dumps(results, indent=1) + "\n")
    return results
