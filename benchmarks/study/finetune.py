"""Fine-tuning of the tasks below --data-root, from the pre-trained model and from random weights.

Both have the same settings. Each run is evaluated once, at its end, so that no step is chosen on the dev set. The
limits are tokens, equal for all tasks, so that the time of fine-tuning is known before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.shared.commands import Command
from benchmarks.study.plan import Plan
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.vocabulary import Vocabulary
from pipeline.tasks.files import reading
from pipeline.tasks.registry import TASKS, find_task
from pipeline.tasks.task import SpanLimits, Task


@dataclass(frozen=True)
class TaskSize:
    """The size of a task.

    Attributes:
        data: directory of its official files.
        samples: of the training set: texts or pairs, all options of a question, or windows of a passage.
        mean_tokens: of a training sample.
        dev_examples: examples in the dev set.
    """

    data: Path
    samples: int
    mean_tokens: float
    dev_examples: int


def find_task_data(root: Path) -> dict[str, Path]:
    """The directory below `root` of each task that has a training set and a dev set there, by name.

    WNLI is left out: its dev set has sentences of the training set with other labels, so what is learned is wrong.
    """
    found: dict[str, Path] = {}
    named = [path for path in sorted(root.glob("*")) if path.name.lower().rstrip("12") in ("glue", "squad", "race")]
    for task in TASKS.values():
        for directory in (*named, root):
            splits = task.files.find(task, directory) if task.files is not None and directory.is_dir() else {}
            if task.name != "wnli" and {"train", task.dev_splits[0]} <= set(splits):
                found.setdefault(task.name, directory)
    return found


def size_of(task: Task, data: Path, vocabulary: Vocabulary, plan: Plan) -> TaskSize:
    """Reads the files of a task. Raises UserError if they have a mistake."""
    splits = reading.read(task, str(data))
    limits = SpanLimits(doc_stride=plan.stride)
    lengths = task.kind.make_features(task, vocabulary, splits["train"], plan.length, limits).lengths
    return TaskSize(data, len(lengths), float(lengths.mean()), len(splits[task.dev_splits[0]]))


def affordable(sizes: Mapping[str, TaskSize], tokens: float, plan: Plan) -> list[str]:
    """The names of the tasks that this many tokens suffice for, at least one.

    Runs that are too short show nothing. So there are fewer tasks rather than shorter runs, and those with most
    examples in their dev sets, because their intervals are narrowest.
    """
    count = max(1, int(tokens // plan.task_tokens)) if plan.task_tokens else len(sizes)
    kept = sorted(sizes, key=lambda name: sizes[name].dev_examples, reverse=True)[:count]
    return [name for name in sizes if name in kept]


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
        out: directory of the run. Its name has the steps, which the minutes decide, so that others make new runs.
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


Pair = tuple[Job, Job]  # the jobs of one task: from the pre-trained model, and from random weights


def jobs_of(task: Task, size: TaskSize, tokens: float, plan: Plan, export: Path, runs: Path) -> Pair:
    """The jobs of a task.

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


def choose_jobs(plan: Plan, found: Mapping[str, Path], out: Path, vocabulary: Path, tokens: float) -> list[Pair]:
    """The jobs of each task that there is time for.

    Args:
        found: directory of each task's files, by name.
        tokens: that fine-tuning may read on all tasks together, with all its runs.
    """
    pieces = load_vocabulary(vocabulary)
    sizes = {name: size_of(find_task(name), data, pieces, plan) for name, data in found.items()}
    names = affordable(sizes, tokens, plan) if sizes else []
    limit, export = tokens / max(1, len(names)), out / "pretrain" / "export"
    return [jobs_of(find_task(name), sizes[name], limit, plan, export, out / "runs" / name) for name in names]


def command(job: Job, plan: Plan, python: Sequence[str]) -> Command:
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
