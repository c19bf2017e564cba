"""The results of fine-tuning: predictions, submissions and results.json of a run, and the summary of several seeds."""

import dataclasses
import functools
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from common.errors import UserError
from common.files import atomic
from pipeline.analysis.comparison import NOT_ABOVE, estimate_of
from pipeline.checkpoint.results import RESULTS, OneRunRecord, read_results
from pipeline.distributed.control import ControlGroup
from pipeline.finetuning.prediction import predict
from pipeline.settings.run_settings import FinetuneSettings
from pipeline.tasks.features import Features
from pipeline.tasks.task import Task


def write_results(
    settings: FinetuneSettings,
    task: Task,
    model: nn.Module,
    features: Mapping[str, Features],
    control: ControlGroup,
    steps: int,
    best_step: int,
    predicted_data: str,
) -> None:
    """Predicts every split but "train" and writes logits/, submission/ and results.json. Collective.

    Args:
        steps: all steps of the run.
        best_step: the step of the weights in `model`.
        predicted_data: digest of all splits.
    Raises:
        UserError: on all ranks, if rank 0 cannot write. The training is kept; the same command writes them again.
    """
    metrics: dict[str, dict[str, float]] = {}

    def not_written(reason: str) -> UserError:
        return UserError(
            f"the predictions of {settings.flags.output} were not written: {reason}; training is done and saved, and "
            "the same command repeats only this"
        )

    for split in [split for split in features if split != "train"]:
        found = predict(model, features[split], control, next(model.parameters()).device)
        control.all_or_raise(
            functools.partial(_write_split, task, split, found, settings.flags.output),
            (OSError, UserError),
            not_written,
        )
        if found is not None and (of_split := task.kind.metrics(task, found)):
            metrics[split] = of_split
            _print_split(task, split, of_split, found)
    if control.rank == 0:
        results: dict[str, Any] = {
            "task": task.name,
            **({} if settings.own_task is None else {"own_task": dataclasses.asdict(settings.own_task)}),
            "model": settings.model.to_dict(),
            "init": None if settings.flags.random_weights else os.path.abspath(settings.flags.init),
            "random_weights": settings.flags.random_weights,
            "seed": settings.flags.seed,
            "hyperparameters": settings.hyperparameters,
            "steps": steps,
            "best_step": best_step,
            "examples": {split: of_split.examples for split, of_split in features.items()},
            "metrics": metrics,
            "predicted_data": predicted_data,
        }
        atomic.write_text(settings.flags.output / RESULTS, json.dumps(results, indent=1) + "\n")


def how_to_predict(run: Path) -> str:
    """The command that predicts with a fine-tuned run, for people."""
    return f"to predict: python -m pipeline.predict --run {run} --input FILE --out predicted.jsonl"


def _write_split(task: Task, split: str, found: Any | None, output: Path) -> None:
    """Writes the predictions of one split, which rank 0 has."""
    if found is None:
        return
    for directory in ("logits", "submission"):
        (output / directory).mkdir(exist_ok=True)
    found.save(output / "logits" / f"{split}{task.kind.ending}")
    task.write_submission(split, found, output / "submission")


def _print_split(task: Task, split: str, metrics: Mapping[str, float], found: Any) -> None:
    print(f"{split}: {', '.join(f'{name} {value:.4g}' for name, value in metrics.items())}")
    if (estimate := estimate_of(task, found)) is not None:
        low, high = estimate.interval
        if task.kind.predicts_numbers:
            print(f"  95 % interval of {task.metrics[0]}: {low / 100:.3f} to {high / 100:.3f}")
            return
        majority = f"; majority class: {estimate.majority:.1f}" if estimate.majority else ""
        verdict = "" if estimate.exceeds_majority else f"; {NOT_ABOVE}"
        print(f"  {estimate.value:.1f} %, 95 % interval {low:.1f} to {high:.1f}{majority}{verdict}")


def write_summary(output: Path, members: Sequence[Path]) -> None:
    """Writes `output/results.json` from those of several seeds: the median of every metric, and its spread.

    The spread is the lowest and the highest value.
    """
    results = [read_results(member / RESULTS, OneRunRecord) for member in members]
    first, metrics = results[0], [result.metrics for result in results]
    median: dict[str, dict[str, float]] = {}
    spread: dict[str, dict[str, list[float]]] = {}
    for split, of_split in first.metrics.items():
        median[split], spread[split] = {}, {}
        for name in of_split:
            if lacking := [member for member, of_run in zip(members, metrics) if name not in of_run.get(split, {})]:
                raise UserError(f"{lacking[0] / RESULTS} lacks {name} of {split}; run that seed again")
            values = [of_run[split][name] for of_run in metrics]
            median[split][name], spread[split][name] = statistics.median(values), [min(values), max(values)]
    shared = ("task", "own_task", "model", "init", "random_weights", "hyperparameters", "examples")
    seeds = [
        {"directory": member.name, "seed": result.seed, "best_step": result.best_step, "metrics": result.metrics}
        for member, result in zip(members, results)
    ]
    recorded = dataclasses.asdict(first)
    summary = {name: recorded[name] for name in shared if name != "own_task" or first.own_task is not None}
    summary |= {"seeds": seeds, "median": median, "spread": spread}
    atomic.write_text(output / RESULTS, json.dumps(summary, indent=1) + "\n")
    for split, of_split in median.items():
        for name, value in of_split.items():
            low, high = spread[split][name]
            print(f"{split}: {name} {value:.4g}, the median of {len(seeds)} seeds from {low:.4g} to {high:.4g}")
    print(how_to_predict(members[0]))
