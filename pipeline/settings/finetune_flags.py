"""The flags of `pipeline.finetune`. A new flag is a field here."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.command_line import Parser, above_zero, below_one, bounded, natural, positive
from common.errors import UserError
from common.text import did_you_mean
from pipeline.settings import declare
from pipeline.settings.declare import flag
from pipeline.settings.run_flags import RunFlags
from pipeline.tasks.files.rows import MAX_LABELS, Columns, name_of
from pipeline.tasks.kinds import OWN_TASKS
from pipeline.tasks.own_tasks import OwnData, check_name
from pipeline.tasks.registry import TASKS

MAX_BATCH = 1 << 20  # examples; more are a mistake, and would not fit into the memory of a host
MAX_SEEDS = 1000
EVALUATIONS, STEPS_BETWEEN = 20, 50
"""Defaults: the most evaluations in a run, and the fewest steps from one to the next."""
_ENDINGS = ".csv, .tsv, .jsonl, .json, .parquet, or .conll of tagging"
_batch = bounded(int, "batch size", lambda n: 1 <= n <= MAX_BATCH, f"at least 1 and at most {MAX_BATCH}")
_seeds = bounded(int, "whole number", lambda n: 1 <= n <= MAX_SEEDS, f"at least 1 and at most {MAX_SEEDS}")


def _default_columns(use: str) -> str:
    """The default names of a column, over the tasks on own files; `use` is a field of `Columns`."""
    return "; ".join(dict.fromkeys(getattr(kind.own_tasks[task], use) for task, kind in OWN_TASKS.items()))


@dataclass(frozen=True, kw_only=True)
class ColumnFlags:
    """The flags of columns with texts."""

    text_column: str | None = flag(
        f"the text, or the tokens of tagging (default: {_default_columns('text')})",
        None,
        metavar="NAME",
        group="own files",
    )
    second_text_column: str | None = flag("the second text of pairs (default: text_pair)", None, metavar="NAME")
    choice_columns: tuple[str, ...] = flag("a column for each choice, or one with lists of choices", (), metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class FinetuneFlags(ColumnFlags, RunFlags):
    """The command line of `pipeline.finetune`."""

    task_word: str = flag(
        f"one of {', '.join(TASKS)}; on own files {', '.join(OWN_TASKS)}",
        name="--task",
        metavar="TASK",
        group="task and model",
    )
    init: Path = flag("an export, the --output of a run, or a model of the hub (OWNER/NAME)", read=Path, metavar="DIR")
    random_weights: bool = flag("take only architecture and vocabulary from --init", False, fixed=True)
    data: str | None = flag(
        "the task's official files, a directory with train.csv and so on, or a data set", None, metavar="DIR"
    )
    max_length: int | None = flag("tokens of the longest sequence (default: Table 14; own files: 512)", None, positive)
    doc_stride: int | None = flag("SQuAD: tokens from one window to the next (default: 128)", None, positive)
    max_query_length: int | None = flag("SQuAD: tokens of the longest question (default: 64)", None, positive)
    max_answer_length: int | None = flag("SQuAD: tokens of the longest answer (default: 30)", None, positive)

    train_file: Path | None = flag(f"examples to train on; {_ENDINGS}", None, Path, metavar="FILE", group="own files")
    dev_file: Path | None = flag("the examples to choose the best step by", None, Path, metavar="FILE")
    test_file: Path | None = flag("the examples to predict", None, Path, metavar="FILE")
    label_column: str | None = flag(f"the label (default: {_default_columns('label')})", None, metavar="NAME")
    label_names: tuple[str, ...] = flag(
        "multi-label: what the labels are called, if each text has a 0 or 1 for each", (), metavar="NAME"
    )
    subset: str | None = flag("the subset of a data set on the hub", None, metavar="NAME")
    task_name: str | None = flag("its name in results and exports (default: that of --task)", None, metavar="NAME")

    deepspeed_config: Path | None = flag(
        "DeepSpeed's JSON (default: made of Table 14)", None, name="--deepspeed_config", metavar="JSON", group="run"
    )
    seeds: int | None = flag("make N runs with seeds from --seed on, and report median and spread", None, _seeds)
    steps: int | None = flag("optimizer steps of the run (default: Table 14; own files: 3 epochs)", None, positive)
    epochs: float | None = flag("passes over the training examples, in place of --steps", None, above_zero)
    warmup_steps: int | None = flag(
        "steps of warm-up (default: the JSON's, or the fraction of Table 14; own files: a tenth)", None, natural
    )
    learning_rate: float | None = flag(
        "peak of the learning rate, which then decays to 0 (Table 14; own files: 2e-5; higher below width 768)",
        None,
        below_one,
    )
    batch_size: int | None = flag(
        "examples (windows of SQuAD and tagging, questions of RACE) in a step (default: Table 14; own files: 32)",
        None,
        _batch,
    )
    micro_batch_size: int | None = flag(
        "examples of a micro-batch on one rank (default: a rank's part of the batch)", None, _batch
    )
    dropout: float | None = flag("dropout inside the encoder (default: Table 14; own files: 0.1)", None, below_one)
    classifier_dropout: float = flag("dropout before the classifier", 0.1, below_one)
    weight_decay: float | None = flag("weight decay of the optimizer (default: 0.01)", None, below_one)

    log_interval: int | None = flag(
        "steps from one logged line to the next (default: a hundredth of the steps, at most 100)",
        None,
        positive,
        group="logging, evaluation, checkpoints",
    )
    eval_interval: int | None = flag(
        f"steps from one evaluation to the next (default: 1/{EVALUATIONS} of the steps, at least {STEPS_BETWEEN} or "
        "all)",
        None,
        positive,
    )

    @property
    def is_own_task(self) -> bool:
        """Whether the task is on own files."""
        return self.task_word in OWN_TASKS

    def outputs(self) -> list[Path]:
        """The directory of the run of each seed."""
        if self.seeds is None:
            return [self.output]
        return [self.output / f"seed-{seed}" for seed in range(self.seed, self.seed + self.seeds)]

    def own_data(self) -> OwnData:
        """The own data that the flags name. Raises UserError for flags that do not fit together."""
        named = {"train": self.train_file, "dev": self.dev_file, "test": self.test_file}
        files = {split: file for split, file in named.items() if file is not None}
        task = self.task_word
        if bool(files) == (self.data is not None):
            given = "both are given" if files else "none of them is given"
            raise UserError(f"--task {task} needs --train-file or --data, and {given}; give one of them")
        if files and "train" not in files:
            raise UserError(f"--task {task} needs --train-file beside the other files")
        if self.subset is not None and (files or Path(self.data or "").exists()):
            raise UserError("--subset names a part of a data set on the hub; give its name as --data, or drop it")
        return OwnData(task, check_name(self.task_name or task), self._columns(), files, self.data, self.subset)

    def _columns(self) -> Columns:
        task, choices = self.task_word, self.choice_columns
        kind = OWN_TASKS[task]
        if kind.has_choices and not choices:
            raise UserError(f"--task {task} needs --choice-columns, one for each choice or one with lists of them")
        if choices and not kind.has_choices:
            raise UserError(f"--choice-columns is for --task multiple-choice, not {task}")
        if self.second_text_column is not None and not kind.has_second_text:
            raise UserError(f"--second-text-column is for texts, not for {task}; drop it")
        names = tuple(name_of(name) or "" for name in self.label_names)
        if names and "multi-label" not in kind.own_tasks:
            raise UserError(f"--label-names is for --task multi-label, not {task}")
        are_printable = all(name and name.isprintable() for name in names)
        if names and not (1 < len(set(names)) == len(names) <= MAX_LABELS and are_printable):
            wanted = f"2 to {MAX_LABELS:,} different printable names"
            raise UserError(f"--label-names needs {wanted}; it has {', '.join(map(repr, names)):.200}")
        if len(set(choices)) < len(choices):
            raise UserError(f"--choice-columns names a column twice: {', '.join(choices)}")
        default = kind.own_tasks[task]
        second = self.second_text_column or default.second_text
        columns = Columns(self.text_column or default.text, second, self.label_column or default.label, choices, names)
        named = [columns.text, *([second] if second else []), columns.label, *choices]
        if len(set(named)) < len(named):
            raise UserError(f"one column has two uses: {', '.join(named)}; name different columns")
        return columns


def parser() -> Parser:
    """The command line of `pipeline.finetune`."""
    return declare.make_parser(
        FinetuneFlags,
        "deepspeed --module pipeline.finetune",
        "Fine-tunes on a task of the paper, or on your own files. The same command again, with the same --output, "
        "resumes the run.",
    )


def seed_directories(output: Path, file: str) -> list[Path]:
    """The directories of a run's seeds that have `file`, ordered by the seed."""
    found = (path.parent for path in output.glob(f"seed-*/{file}") if path.parent.name[5:].isdecimal())
    return sorted(found, key=lambda path: (len(path.name), path.name))


def parse(words: Sequence[str]) -> FinetuneFlags:
    """Parses the command line, and that of the run in --output if `words` name no task.

    Raises UserError for a mistake that shows without reading a file.
    """
    words = declare.with_file(FinetuneFlags, words)
    if declare.value_in(words, "--task") is None and (output := declare.value_in(words, "--output")) is not None:
        place, name = Path(output), "config.yaml"
        if begun := [place] if (place / name).exists() else seed_directories(place, name):
            newest = max((run / name for run in begun), key=lambda path: path.stat().st_mtime_ns)
            words = declare.with_file(FinetuneFlags, words, newest)
    flags = declare.from_namespace(FinetuneFlags, parser().parse_all(words))
    if flags.steps is not None and flags.epochs is not None:
        raise UserError("--steps and --epochs, of the command or its config.yaml, both say how long to train; drop one")
    if flags.seed + (flags.seeds or 1) > 2**63:
        raise UserError(f"--seed {flags.seed} and --seeds {flags.seeds} go beyond 2**63 - 1; give a smaller --seed")
    if flags.is_own_task:
        flags.own_data()
        return flags
    if flags.task_word not in TASKS:
        names = (*TASKS, *OWN_TASKS)
        hint = did_you_mean(flags.task_word, names, f"choose one of {', '.join(names)}")
        raise UserError(f"there is no task {flags.task_word!r}; {hint}")
    for one in declare.flags_of(FinetuneFlags):
        if one.group == "own files" and getattr(flags, one.field) != one.default:
            raise UserError(f"{one.name} is for tasks on own files; leave it out with --task {flags.task_word}")
    if flags.data is None:
        raise UserError(f"--task {flags.task_word} needs --data, a directory with its files or a data set's name")
    return flags
