"""The commands of fine-tuning.

Every task is fine-tuned from the pre-trained model and from random weights with the same settings. Each run is
evaluated once, at its end, so that no step is chosen on the dev set. The limits are tokens, equal for all tasks, so
that the time of fine-tuning is known before.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.shared.commands import Command
from benchmarks.study.plan import Plan
from benchmarks.study.tasks import TaskSize
from pipeline.tasks.task import Task


@dataclass(frozen=True)
class Job:
    """One fine-tuning of one start.

    Attributes:
        task: what is learned.
        size: of the task.
        batch_size: samples of a step.
        export: the model that is fine-tuned, for `--init`.
        random: whether random weights replace those of the export.
        steps: of the optimizer.
        out: directory of the run. Its name has the steps, which the hours decide, so that other hours make new runs.
    """

    task: Task
    size: TaskSize
    batch_size: int
    export: Path
    random: bool
    steps: int
    out: Path

    @property
    def epochs(self) -> float:
        """Passes over the training set."""
        return self.steps * self.batch_size / self.size.samples


def jobs_of(task: Task, size: TaskSize, tokens: float, plan: Plan, export: Path, runs: Path) -> tuple[Job, Job]:
    """The jobs of a task: from the pre-trained model, and from random weights.

    Args:
        tokens: that all runs of the task together may read.
        runs: directory of the task's runs.
    """
    batch_size = plan.batch_size(size.mean_tokens)
    most_samples = tokens / size.mean_tokens / (2 * plan.seeds)
    steps = max(1, round(min(plan.epochs * size.samples, most_samples) / batch_size))
    place = runs / f"{steps}-steps"
    trained = Job(task, size, batch_size, export, False, steps, place / "pre-trained")
    return trained, replace(trained, random=True, out=place / "random")


def command(job: Job, plan: Plan, python: tuple[str, ...]) -> Command:
    """The command of one job: a run for each seed."""
    words = [*python, "pipeline.finetune", "--task", job.task.name, "--init", str(job.export)]
    words += ["--data", str(job.size.data), "--output", str(job.out)]
    words += ["--steps", str(job.steps), "--warmup-steps", str(job.steps // 5)]
    words += ["--eval-interval", str(job.steps), "--log-interval", str(max(1, job.steps // 10))]
    words += ["--learning-rate", f"{plan.learning_rate:g}", "--batch-size", str(job.batch_size)]
    words += ["--max-length", str(plan.length), "--dropout", "0", "--seeds", str(plan.seeds)]
    if job.task.kind.uses_span_limits:
        words += ["--doc-stride", str(plan.stride)]
    if job.random:
        words.append("--random-weights")
    return Command(f"fine-tune {job.task.name} {job.out.name}", tuple(words), job.out / "results.json")
