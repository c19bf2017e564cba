"""Turns a table of the paper into the commands that make it, by pure functions of its rows, a scale and paths.

A table is a list of rows; a row says what a model is pre-trained with. All sweeps (size, sharing, embedding, sentence
loss, dropout, data) therefore work in the same way: each distinct row is pre-trained once, and fine-tuned on each of
the table's tasks. Rows that two tables have in common are run once for both.

    ROOT/corpus                  the sample corpus, if no shards were given
    ROOT/SLUG/pretrain           a row's pre-training
    ROOT/SLUG/TASK               its fine-tuning
    ROOT/ensemble-N/TASK         the ensembles of table N
    ROOT/table-N                 the table
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.paper.printed_tables import PreTraining, Table
from pipeline.paper.scales import Scale
from pipeline.tasks.registry import TASKS

CORPUS_LENGTH = 128
"""Positions of a packed row in the shards of the sample corpus."""


@dataclass(frozen=True)
class Paths:
    """The directories and launchers of all commands.

    Attributes:
        root: directory of everything that is made.
        data: shards to pre-train on; None to make them from the sample corpus.
        eval_data: shards of held-out documents.
        additional_data: shards of the rows with more data.
        tasks: the directory of each task's files; missing tasks are not run.
        launcher: the words before the module of a training, such as ("deepspeed", "--hostfile", "hosts", "--module").
        python: the words before the module of a command with one process.
    """

    root: Path
    data: Path | None
    eval_data: Path | None
    additional_data: Path | None
    tasks: Mapping[str, Path]
    launcher: tuple[str, ...]
    python: tuple[str, ...]

    @property
    def corpus(self) -> Path:
        """The directory of the sample corpus."""
        return self.root / "corpus"

    def shards(self, additional: bool) -> Path:
        """The shards to pre-train on."""
        if additional:
            return self.additional_data or self.corpus / "shards" / "more"
        return self.data or self.corpus / "shards" / "train"

    @property
    def held_out(self) -> Path:
        """The shards to evaluate pre-training on."""
        return self.eval_data or self.corpus / "shards" / "held_out"


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: for the log.
        argv: its words.
        done: a file that exists once the command has ended; None if the command is always run.
    """

    name: str
    argv: tuple[str, ...]
    done: Path | None = None

    @property
    def is_done(self) -> bool:
        """Whether the command has ended in an earlier start and need not run again."""
        return self.done is not None and self.done.exists()


Stage = tuple[Command, ...]
"""Commands that may run at the same time."""


def describe_commands(caption: str, stages: Sequence[Stage]) -> str:
    """The commands for a shell, each below a comment with its name."""
    commands = [command for stage in stages for command in stage]
    lines = [f"# {caption}"]
    for command in commands:
        lines += ["", f"# {command.name}{', done' if command.is_done else ''}", shlex.join(command.argv)]
    left = sum(not command.is_done for command in commands)
    return "\n".join([*lines, "", f"# {left} of {len(commands)} commands left to run"])


def stages(table: Table, scale: Scale, paths: Paths, max_hours: float | None = None) -> list[Stage]:
    """All commands that `table` needs, in order; each stage waits for the stage before it.

    Args:
        max_hours: a limit on every pre-training in addition to the steps, for Table 6 on other hardware than the
            paper's.
    """
    rows = distinct_rows(table)
    tasks = [task for task in table.tasks if task in paths.tasks]
    first = [task for task in tasks if not _from_mnli(task, tasks)]
    later = [task for task in tasks if _from_mnli(task, tasks)]
    found: list[Stage] = corpus_stages(paths, any(row.additional_data for row in rows)) if paths.data is None else []
    found.append(tuple(pretraining_command(row, scale, paths, max_hours) for row in rows))
    for chosen in (first, later):
        found.append(tuple(finetuning_command(row, task, tasks, scale, paths) for row in rows for task in chosen))
    if any(row.ensemble for row in table.rows) and tasks:
        found.append((ensemble_command(table, tasks, scale, paths),))
    found.append((tables_command(table, rows, paths),))
    return [stage for stage in found if stage]


def distinct_rows(table: Table) -> list[PreTraining]:
    """The distinct pre-trainings of the table, in the order of its rows."""
    return list(dict.fromkeys(row.pretraining for row in table.rows if row.pretraining is not None))


def _from_mnli(task: str, tasks: Sequence[str]) -> bool:
    return TASKS[task].starts_from == "mnli" and "mnli" in tasks


def corpus_stages(paths: Paths, additional: bool) -> list[Stage]:
    """The commands that make shards of the sample corpus: Wikipedia, and with `additional` also Shakespeare."""
    corpus = Corpus(paths.corpus, paths.python)
    wikipedia, books = (corpus.documents(source) for source in ("wikipedia", "books"))
    sets = [
        corpus.shards("train", "train", [wikipedia], CORPUS_LENGTH),
        corpus.shards("held_out", "held_out", [wikipedia, books], CORPUS_LENGTH),
    ]
    if additional:
        sets.append(corpus.shards("more", "train", [wikipedia, books], CORPUS_LENGTH))
    made = corpus.sample_stages(("wikipedia", "books"))
    return [*made, (corpus.vocabulary([wikipedia, books], 2000),), tuple(sets)]


@dataclass(frozen=True)
class Corpus:
    """The commands that make documents, a vocabulary and shards below `home`.

    Attributes:
        home: directory of everything that is made.
        python: the words before the module of a command.
    """

    home: Path
    python: tuple[str, ...]

    def documents(self, source: str) -> Path:
        """The directory of the sample's documents of one source."""
        return self.home / "documents" / source

    def shards_at(self, name: str) -> Path:
        """The directory of a set of shards."""
        return self.home / "shards" / name

    def sample_stages(self, sources: Sequence[str]) -> list[Stage]:
        """From nothing to the documents of the sample: any of "wikipedia", "books" and "api"."""
        sample = self.home / "sample"
        first = self.documents(sources[0]) / "documents.json"
        made = Command("sample", (*self.python, "data_prep", "sample", "--out", str(sample)), first)
        return [(made,), tuple(self._extract(source, sample / source) for source in sources)]

    def _extract(self, source: str, text: Path) -> Command:
        kind = ("jsonl", "--id-field", "id", "--title-field", "title") if source == "api" else (source,)
        out = self.documents(source)
        words = (*self.python, "data_prep", "extract", "--source", *kind, "--input", str(text), "--out", str(out))
        return Command(f"extract {source}", (*words, "--held-out", "0.05"), out / "documents.json")

    def vocabulary(self, documents: Sequence[Path], size: int) -> Command:
        """Trains the vocabulary."""
        out = self.home / "vocabulary.model"
        words = (*self.python, "data_prep", "vocab", "--documents", *map(str, documents), "--out", str(out))
        return Command("vocabulary", (*words, "--size", str(size)), out)

    def shards(self, name: str, split: str, documents: Sequence[Path], length: int) -> Command:
        """Makes shards of rows of `length` tokens."""
        out = self.shards_at(name)
        words = (*self.python, "data_prep", "shards", "--documents", *map(str, documents))
        words += ("--vocab", str(self.home / "vocabulary.model"), "--out", str(out), "--split", split)
        return Command(f"shards {name}", (*words, "--max-seq-length", str(length)), out / "manifest.json")


def pretraining_command(row: PreTraining, scale: Scale, paths: Paths, max_hours: float | None = None) -> Command:
    """The command that pre-trains a row."""
    out = paths.root / scale.slug(row) / "pretrain"
    fields = scale.model_fields(row)
    steps = scale.steps(row)
    often = min(1000, max(1, steps // 10))
    argv = [*paths.launcher, "pipeline.pretrain", "--model", row.model]
    if fields:
        argv += ["--model-args", *(f"{name}={value}" for name, value in fields.items())]
    argv += ["--objective", scale.objective(row), "--data", str(paths.shards(row.additional_data))]
    argv += ["--eval-data", str(paths.held_out), "--deepspeed_config", str(scale.configs[row.model])]
    argv += ["--output", str(out), "--steps", str(steps), "--log-interval", str(max(1, often // 5))]
    argv += ["--eval-interval", str(often), "--save-interval", str(min(5000, max(1, steps // 2)))]
    if max_hours is not None:
        argv += ["--max-hours", f"{max_hours:g}"]
    return Command(f"pre-train {scale.slug(row)}", tuple(argv), out / "done")


def finetuning_command(row: PreTraining, task: str, tasks: Sequence[str], scale: Scale, paths: Paths) -> Command:
    """The command that fine-tunes a row's model on one task.

    Args:
        tasks: all tasks that are run; if MNLI is one of them, some others start from its model.
    """
    home = paths.root / scale.slug(row)
    out, init = home / task, home / "pretrain"
    if _from_mnli(task, tasks):
        init = home / "mnli" / "seed-0" if scale.seeds > 1 else home / "mnli"
    argv = [*paths.launcher, "pipeline.finetune", "--task", task, "--init", str(init)]
    argv += ["--data", str(paths.tasks[task]), "--output", str(out)]
    if scale.seeds > 1:
        argv += ["--seeds", str(scale.seeds)]
    for name, value in scale.finetuning.items():
        argv += [f"--{name}", value]
    # With several seeds results.json is their summary, and is written last.
    return Command(
        f"fine-tune {scale.slug(row)} on {task}", tuple(argv), out / ("results.json" if scale.seeds > 1 else "done")
    )


def ensemble_command(table: Table, tasks: Sequence[str], scale: Scale, paths: Paths) -> Command:
    """The command that averages the predictions of all the table's models, task by task."""
    runs = [paths.root / scale.slug(row) / task for row in distinct_rows(table) for task in tasks]
    argv = (*paths.python, "pipeline.evaluate", "ensemble", "--runs", *map(str, runs))
    return Command("ensemble", (*argv, "--out", str(paths.root / f"ensemble-{table.name}")))


def tables_command(table: Table, rows: Sequence[PreTraining], paths: Paths) -> Command:
    """The command that writes the table from all runs."""
    argv = [*paths.python, "pipeline.evaluate", "tables", "--runs", str(paths.root), "--tables", table.name]
    argv += ["--out", str(paths.root / f"table-{table.name}")]
    if any(row.additional_data for row in rows):
        argv += ["--additional-data", str(paths.shards(True))]
    return Command("table", tuple(argv))


def missing_tasks(table: Table, paths: Paths) -> list[str]:
    """The table's tasks without data, in the order of Table 14."""
    return [task for task in TASKS if task in table.tasks and task not in paths.tasks]
