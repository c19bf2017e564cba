"""From a table of the paper to the commands that make it: pure functions of its rows, a scale and where things lie.

A table is a list of rows; a row is what a model is pre-trained with. So sweeps of size, sharing, embedding, sentence
loss, dropout and data are all the same: each distinct row is pre-trained once, and fine-tuned on each of the table's
tasks. Rows that two tables share are run once for both.

    ROOT/corpus                  the sample corpus, if no shards were given
    ROOT/SLUG/pretrain           a row's pre-training
    ROOT/SLUG/TASK               its fine-tuning
    ROOT/random/SLUG/TASK        the same from random weights, if that is asked for
    ROOT/ensemble-N/TASK         the ensembles of table N
    ROOT/table-N                 the table
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.tasks.paper import PreTraining, Table
from pipeline.tasks.scales import Scale
from pipeline.tasks.task import TASKS

STARTS_FROM_MNLI = ("rte", "stsb", "mrpc")
"""Fine-tuned from the MNLI model (section 4.9), where the table has that task, too."""

CORPUS_LENGTH = 128
"""Positions of a row of the sample corpus' shards."""


@dataclass(frozen=True)
class Places:
    """Where things lie.

    Attributes:
        root: directory of everything that is made.
        data: shards to pre-train on; None to make them of the sample corpus.
        eval_data: shards of held-out documents.
        additional_data: shards of the rows that have more data.
        tasks: the directory of each task's files; tasks that are missing are not run.
        launcher: the words before the module, e.g. ("deepspeed", "--hostfile", "hostfile", "--module").
        python: the words before a module that one process runs.
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
        """Where the sample corpus is made."""
        return self.root / "corpus"

    def shards(self, additional: bool) -> Path:
        """What to pre-train on."""
        if additional:
            return self.additional_data or self.corpus / "shards" / "more"
        return self.data or self.corpus / "shards" / "train"

    @property
    def held_out(self) -> Path:
        """What to evaluate pre-training on."""
        return self.eval_data or self.corpus / "shards" / "held_out"


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: for the log.
        argv: its words.
        done: a file that is there once it need not be run again; None if it is always run.
        pretraining: the row, of a pre-training and of a fine-tuning.
        task: of a fine-tuning.
    """

    name: str
    argv: tuple[str, ...]
    done: Path | None = None
    pretraining: PreTraining | None = None
    task: str | None = None


Stage = tuple[Command, ...]
"""Commands that do not wait for each other."""


def stages(
    table: Table, scale: Scale, places: Places, max_hours: float | None = None, random_weights: bool = False
) -> list[Stage]:
    """Everything that `table` needs, in order; each stage waits for the one before it.

    Args:
        max_hours: of every pre-training, instead of a number of steps (Table 6 on other hardware than the paper's).
        random_weights: whether each model is also fine-tuned without its pre-training, and compared.
    """
    rows = distinct_rows(table)
    tasks = [task for task in table.tasks if task in places.tasks]
    first = [task for task in tasks if not _from_mnli(task, tasks)]
    later = [task for task in tasks if _from_mnli(task, tasks)]
    found: list[Stage] = corpus_stages(places, any(row.additional_data for row in rows)) if places.data is None else []
    found.append(tuple(pretraining_command(row, scale, places, max_hours) for row in rows))
    for chosen in (first, later):
        found.append(tuple(finetuning_command(row, task, tasks, scale, places) for row in rows for task in chosen))
    if random_weights and tasks:
        found.append(tuple(finetuning_command(row, task, tasks, scale, places, True) for row in rows for task in tasks))
        found.append(tuple(comparison_command(row, scale, places) for row in rows))
    if any(row.ensemble for row in table.rows) and tasks:
        found.append((ensemble_command(table, tasks, scale, places),))
    found.append((tables_command(table, rows, places),))
    return [stage for stage in found if stage]


def distinct_rows(table: Table) -> list[PreTraining]:
    """What the table's own rows are pre-trained with, each once, in its order."""
    return list(dict.fromkeys(row.pretraining for row in table.rows if row.pretraining is not None))


def _from_mnli(task: str, tasks: Sequence[str]) -> bool:
    return task in STARTS_FROM_MNLI and "mnli" in tasks


def corpus_stages(places: Places, additional: bool) -> list[Stage]:
    """The sample corpus as shards: Wikipedia, and with `additional` also Shakespeare; one vocabulary for both."""
    corpus, prepare = places.corpus, (*places.python, "data_prep")
    wikipedia, books = corpus / "documents" / "wikipedia", corpus / "documents" / "books"

    def extract(source: str, out: Path) -> Command:
        return Command(
            f"extract {source}",
            (*prepare, "extract", "--source", source, "--input", str(corpus / "sample" / source), "--out", str(out))
            + ("--held-out", "0.05"),
            out / "documents.json",
        )

    def shards(name: str, split: str, *documents: Path) -> Command:
        out = corpus / "shards" / name
        words = (*prepare, "shards", "--documents", *map(str, documents), "--vocab", str(corpus / "vocabulary.model"))
        words += ("--out", str(out), "--split", split, "--max-seq-length", str(CORPUS_LENGTH))
        return Command(f"shards {name}", words, out / "manifest.json")

    sample = Command("sample", (*prepare, "sample", "--out", str(corpus / "sample")), wikipedia / "documents.json")
    vocabulary = Command(
        "vocabulary",
        (*prepare, "vocab", "--documents", str(wikipedia), str(books), "--out", str(corpus / "vocabulary.model"))
        + ("--size", "2000"),
        corpus / "vocabulary.model",
    )
    sets = [shards("train", "train", wikipedia), shards("held_out", "held_out", wikipedia, books)]
    if additional:
        sets.append(shards("more", "train", wikipedia, books))
    return [(sample,), (extract("wikipedia", wikipedia), extract("books", books)), (vocabulary,), tuple(sets)]


def pretraining_command(row: PreTraining, scale: Scale, places: Places, max_hours: float | None = None) -> Command:
    """The pre-training of a row."""
    out = places.root / scale.slug(row) / "pretrain"
    fields = scale.model_fields(row)
    steps = scale.steps(row)
    often = min(1000, max(1, steps // 10))
    argv = [*places.launcher, "pipeline.pretrain", "--model", row.model]
    if fields:
        argv += ["--model-args", *(f"{name}={value}" for name, value in fields.items())]
    argv += ["--objective", scale.objective(row), "--data", str(places.shards(row.additional_data))]
    argv += ["--eval-data", str(places.held_out), "--deepspeed_config", str(scale.configs[row.model])]
    argv += ["--output", str(out), "--steps", str(steps), "--log-interval", str(max(1, often // 5))]
    argv += ["--eval-interval", str(often), "--save-interval", str(min(5000, max(1, steps // 2)))]
    if max_hours is not None:
        argv += ["--max-hours", f"{max_hours:g}"]
    return Command(f"pre-train {scale.slug(row)}", tuple(argv), out / "done", row)


def finetuning_command(
    row: PreTraining, task: str, tasks: Sequence[str], scale: Scale, places: Places, random_weights: bool = False
) -> Command:
    """The fine-tuning of a row's model on one task, of the several `tasks` that are run.

    Args:
        random_weights: of the same model without its pre-training, one seed, for comparison.
    """
    home, several = places.root / scale.slug(row), scale.seeds > 1 and not random_weights
    out = (places.root / "random" / scale.slug(row) if random_weights else home) / task
    init = home / "pretrain"
    if _from_mnli(task, tasks) and not random_weights:
        init = home / "mnli" / "seed-0" if several else home / "mnli"
    argv = [*places.launcher, "pipeline.finetune", "--task", task, "--init", str(init)]
    argv += ["--data", str(places.tasks[task]), "--output", str(out)]
    if several:
        argv += ["--seeds", str(scale.seeds)]
    for name, value in scale.finetuning.items():
        argv += [f"--{name}", value]
    if random_weights:
        argv.append("--random-weights")
    name = f"fine-tune {scale.slug(row)} on {task}" + (" from random weights" if random_weights else "")
    # Of several seeds results.json sums up, and is written last.
    return Command(name, tuple(argv), out / ("results.json" if several else "done"), row, task)


def comparison_command(row: PreTraining, scale: Scale, places: Places) -> Command:
    """The figures of a row's fine-tunings beside those of random weights."""
    home = places.root / scale.slug(row)
    argv = [*places.python, "pipeline.evaluate", "compare", "--runs", str(home)]
    argv += ["--random", str(places.root / "random" / scale.slug(row)), "--out", str(home / "comparison")]
    return Command(f"compare {scale.slug(row)}", tuple(argv))


def ensemble_command(table: Table, tasks: Sequence[str], scale: Scale, places: Places) -> Command:
    """The mean of the predictions of all the table's models, a task each."""
    runs = [places.root / scale.slug(row) / task for row in distinct_rows(table) for task in tasks]
    argv = (*places.python, "pipeline.evaluate", "ensemble", "--runs", *map(str, runs))
    return Command("ensemble", (*argv, "--out", str(places.root / f"ensemble-{table.name}")))


def tables_command(table: Table, rows: Sequence[PreTraining], places: Places) -> Command:
    """The table itself, of all that has been run."""
    argv = [*places.python, "pipeline.evaluate", "tables", "--runs", str(places.root), "--tables", table.name]
    argv += ["--out", str(places.root / f"table-{table.name}")]
    if any(row.additional_data for row in rows):
        argv += ["--additional-data", str(places.shards(True))]
    return Command("table", tuple(argv))


def missing_tasks(table: Table, places: Places) -> list[str]:
    """The table's tasks that there is no data of, in the order of Table 14."""
    return [task for task in TASKS if task in table.tasks and task not in places.tasks]
