"""The commands of fine-tuning, and the choice of its settings.

Every task is fine-tuned from the pre-trained model and from random weights with the same settings. The settings are
those with the best mean score of both on the data that `tasks.prepare` keeps for the choice. Each
run is evaluated once, at its end, so that no step is chosen on the dev set. All tasks read as many tokens in all, so
that the time of fine-tuning is known before.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.study.plan import Candidate, Plan
from benchmarks.study.tasks import Prepared
from common.files.json_files import read_object
from pipeline.paper.experiments import Command
from pipeline.tasks.task import Task

STARTS = ("pre-trained", "random")

CHOICE_PART = 0.3
"""The part of a task's tokens that the choice of settings may read."""


@dataclass(frozen=True)
class Job:
    """One fine-tuning of one start.

    Attributes:
        task: what is learned.
        data: for `--data`.
        train_samples: number of training samples.
        candidate: settings.
        random: whether the model starts from random weights.
        seeds: number of runs; 1 for the choice of settings.
        max_read: the most samples that one run reads, in all epochs together.
        out: directory of the run.
    """

    task: Task
    data: Path
    train_samples: int
    candidate: Candidate
    random: bool
    seeds: int
    max_read: int
    out: Path


def steps_of(job: Job, plan: Plan) -> int:
    """The optimizer steps of the candidate's epochs, within the limit of samples read."""
    read = min(job.candidate.epochs * job.train_samples, job.max_read)
    return max(1, round(read / plan.batch_size))


def command(job: Job, plan: Plan, export: Path, python: tuple[str, ...]) -> Command:
    """The command of one job."""
    steps = steps_of(job, plan)
    words = [*python, "pipeline.finetune", "--task", job.task.name, "--init", str(export), "--data", str(job.data)]
    words += ["--output", str(job.out), "--steps", str(steps), "--warmup-steps", str(steps // 10)]
    words += ["--eval-interval", str(steps), "--log-interval", str(max(1, steps // 10))]
    words += ["--learning-rate", f"{job.candidate.learning_rate:g}", "--batch-size", str(plan.batch_size)]
    words += ["--max-length", str(plan.length), "--dropout", "0"]
    if job.task.is_extractive:
        words += ["--doc-stride", str(plan.stride)]
    if job.seeds > 1:
        words += ["--seeds", str(job.seeds)]
    if job.random:
        words.append("--random-weights")
    start = STARTS[job.random]
    name = f"fine-tune {job.task.name} {start} {job.candidate.learning_rate:g} {job.candidate.epochs} x{job.seeds}"
    return Command(name, tuple(words), job.out / "results.json", task=job.task.name)


def candidates(task: Task, ready: Prepared, samples: float, plan: Plan, out: Path) -> list[Job]:
    """A job for each candidate and start, on the data of the choice.

    Candidates of one learning rate that the limit makes equally long are one.

    Args:
        samples: that all runs of the task together may read.
    """
    limit = int(CHOICE_PART * samples / (len(plan.candidates) * len(STARTS)))
    found: dict[tuple[float, int], list[Job]] = {}
    for one in plan.candidates:
        outs = [out / start / f"{one.learning_rate:g}-{one.epochs}" for start in STARTS]
        jobs = [
            Job(task, ready.choice, ready.choice_samples, one, bool(i), 1, limit, place) for i, place in enumerate(outs)
        ]
        found.setdefault((one.learning_rate, steps_of(jobs[0], plan)), jobs)
    return [job for jobs in found.values() for job in jobs]


def choose(jobs: Sequence[Job]) -> Candidate:
    """The candidate with the best mean of both starts; the first of equals. The jobs are finished."""
    scores: dict[Candidate, list[float]] = {}
    for job in jobs:
        metrics = read_object(job.out / "results.json", "run the study again")["metrics"]
        scores.setdefault(job.candidate, []).append(float(metrics[job.task.dev_splits[0]][job.task.score]))
    return max(scores, key=lambda candidate: statistics.fmean(scores[candidate]))


def final(task: Task, ready: Prepared, samples: float, chosen: Candidate, plan: Plan, out: Path) -> tuple[Job, Job]:
    """The jobs that the page shows: from the pre-trained model and from random weights, on all training data.

    Args:
        samples: that all runs of the task together may read.
    """
    limit = int((1 - CHOICE_PART) * samples / (plan.seeds * len(STARTS)))
    trained, random = (
        Job(task, ready.final, ready.final_samples, chosen, bool(i), plan.seeds, limit, out / start)
        for i, start in enumerate(STARTS)
    )
    return trained, random
