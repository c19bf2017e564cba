"""The commands of fine-tuning, and the choice of its learning rate.

Every task is fine-tuned from the pre-trained model and from random weights with the same settings. The learning rate is
the one with the best mean score of both on the data that `tasks.prepare` keeps for the choice. Each run is evaluated
once, at its end, so that no step is chosen on the dev set. The limits are tokens, equal for all tasks, so that the time
of fine-tuning is known before.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.shared.commands import Command
from benchmarks.study.plan import Plan
from benchmarks.study.tasks import Prepared
from common.files.json_files import read_object
from pipeline.tasks.task import Task

CHOICE_PART = 0.2
"""The part of a task's tokens that the choice of the learning rate may read."""


@dataclass(frozen=True)
class Start:
    """What a model is before fine-tuning.

    Attributes:
        name: of the directory of its runs.
        export: the model, for `--init`.
        random: whether random weights replace those of the export.
    """

    name: str
    export: Path
    random: bool = False


@dataclass(frozen=True)
class Job:
    """One fine-tuning of one start.

    Attributes:
        task: what is learned.
        data: for `--data`.
        train_samples: number of training samples.
        batch_size: samples of a step.
        learning_rate: peak.
        start: the model that is fine-tuned.
        seeds: number of runs; 1 for the choice of settings.
        steps: of the optimizer.
        out: directory of the run. Its name has what the hours and the choice decide, so that other hours make new runs.
    """

    task: Task
    data: Path
    train_samples: int
    batch_size: int
    learning_rate: float
    start: Start
    seeds: int
    steps: int
    out: Path

    @property
    def epochs(self) -> float:
        """Passes over the training set."""
        return self.steps * self.batch_size / self.train_samples

    def with_start(self, start: Start) -> "Job":
        """The same fine-tuning of another model."""
        return replace(self, start=start, out=self.out.with_name(start.name))


def steps_of(train_samples: int, batch_size: int, most_samples: float, plan: Plan) -> int:
    """The optimizer steps: those of the plan's epochs, within the limit of samples read."""
    return max(1, round(min(plan.epochs * train_samples, most_samples) / batch_size))


def command(job: Job, plan: Plan, python: tuple[str, ...]) -> Command:
    """The command of one job."""
    words = [*python, "pipeline.finetune", "--task", job.task.name, "--init", str(job.start.export)]
    words += ["--data", str(job.data), "--output", str(job.out)]
    words += ["--steps", str(job.steps), "--warmup-steps", str(job.steps // 5)]
    words += ["--eval-interval", str(job.steps), "--log-interval", str(max(1, job.steps // 10))]
    words += ["--learning-rate", f"{job.learning_rate:g}", "--batch-size", str(job.batch_size)]
    words += ["--max-length", str(plan.length), "--dropout", "0"]
    if job.task.kind.uses_span_limits:
        words += ["--doc-stride", str(plan.stride)]
    if job.seeds > 1:
        words += ["--seeds", str(job.seeds)]
    if job.start.random:
        words.append("--random-weights")
    name = f"fine-tune {job.task.name} {job.start.name} {job.learning_rate:g} x{job.seeds}"
    return Command(name, tuple(words), job.out / "results.json")


def trials(
    task: Task, ready: Prepared, samples: float, plan: Plan, starts: tuple[Start, Start], out: Path
) -> list[Job]:
    """A job for each learning rate and start, on the data of the choice.

    Args:
        samples: that all runs of the task together may read.
        starts: pre-trained and random.
    """
    limit = CHOICE_PART * samples / (len(plan.learning_rates) * len(starts))
    data = ready.choice, ready.choice_samples
    batch = plan.batch_size(ready.mean_tokens)
    return [
        job for rate in plan.learning_rates for job in _jobs_of(starts, task, data, batch, rate, 1, limit, plan, out)
    ]


def choose(jobs: Sequence[Job]) -> float:
    """The learning rate with the best mean score of both starts; the first of equals. The jobs are finished."""
    scores: dict[float, list[float]] = {}
    for job in jobs:
        metrics = read_object(job.out / "results.json", "run the study again")["metrics"]
        scores.setdefault(job.learning_rate, []).append(float(metrics[job.task.dev_splits[0]][job.task.score]))
    return max(scores, key=lambda rate: statistics.fmean(scores[rate]))


def final(
    task: Task, ready: Prepared, samples: float, chosen: float, plan: Plan, starts: tuple[Start, Start], out: Path
) -> tuple[Job, Job]:
    """The jobs that the page shows: from the pre-trained model and from random weights, on all training data.

    Args:
        samples: that all runs of the task together may read.
        starts: pre-trained and random.
    """
    limit = (1 - CHOICE_PART) * samples / (plan.seeds * len(starts))
    data = ready.final, ready.final_samples
    batch = plan.batch_size(ready.mean_tokens)
    return _jobs_of(starts, task, data, batch, chosen, plan.seeds, limit, plan, out)


def _jobs_of(
    starts: tuple[Start, Start],
    task: Task,
    data: tuple[Path, int],
    batch_size: int,
    rate: float,
    seeds: int,
    most_samples: float,
    plan: Plan,
    out: Path,
) -> tuple[Job, Job]:
    """The same job for each start.

    Args:
        data: directory, and its number of training samples.
        most_samples: that a run reads.
    """
    steps = steps_of(data[1], batch_size, most_samples, plan)
    place = out / f"{steps}-steps-{rate:g}"
    job = Job(task, *data, batch_size, rate, starts[0], seeds, steps, place / starts[0].name)
    return job, job.with_start(starts[1])
