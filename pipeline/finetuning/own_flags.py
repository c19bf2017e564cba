"""The flags of tasks on the user's own files."""

import argparse
from pathlib import Path

from common.command_line import Parser
from common.errors import UserError
from pipeline.tasks.own import OwnData, check_name
from pipeline.tasks.task import Columns

_FILES = ("train_file", "dev_file", "test_file")
_COLUMNS = ("text_column", "second_text_column", "label_column", "choice_columns")
_OTHERS = ("task_name", "subset")


def add_arguments(parser: Parser) -> None:
    """Adds the flags to `parser`."""
    for flag, what in (
        ("--train-file", "train on"),
        ("--dev-file", "choose the best step by"),
        ("--test-file", "predict"),
    ):
        parser.add_argument(
            flag,
            type=Path,
            metavar="FILE",
            help=f"own files: the examples to {what}; .csv, .tsv, .jsonl, .json, .parquet, or .conll of tagging",
        )
    add_columns(parser)
    parser.add_argument("--label-column", metavar="NAME", help="own files: the label (label; tags of tagging)")
    parser.add_argument("--subset", metavar="NAME", help="own tasks: the subset of a data set on the hub")
    parser.add_argument(
        "--task-name", metavar="NAME", help="own files: the task's name in results and exports (that of --task)"
    )


def add_columns(parser: Parser) -> None:
    """Adds the flags of the columns with texts to `parser`."""
    parser.add_argument("--text-column", metavar="NAME", help="the text, or the tokens of tagging (text; tokens)")
    parser.add_argument("--second-text-column", metavar="NAME", help="the second text of pairs (text_pair)")
    parser.add_argument(
        "--choice-columns", nargs="+", metavar="NAME", help="a column for each choice, or one with lists of choices"
    )


def check_unused(args: argparse.Namespace) -> None:
    """Raises UserError if a flag of own files is given."""
    if name := next((name for name in (*_FILES, *_COLUMNS, *_OTHERS) if getattr(args, name) is not None), None):
        raise UserError(
            f"--{name.replace('_', '-')} is for tasks on own files, such as --task classification; --task {args.task} "
            "knows its files"
        )


def read(args: argparse.Namespace) -> OwnData:
    """The own data that a parsed command line names. Raises UserError for flags that do not fit together."""
    files = {name.removesuffix("_file"): getattr(args, name) for name in _FILES if getattr(args, name) is not None}
    if bool(files) == (args.data is not None):
        given = "both are given" if files else "none of them is given"
        raise UserError(f"--task {args.task} needs --train-file or --data, and {given}; give one of them")
    if files and "train" not in files:
        raise UserError(f"--task {args.task} needs --train-file beside the other files")
    if args.subset is not None and (files or Path(args.data).exists()):
        raise UserError("--subset names a part of a data set on the hub; give its name as --data, or drop it")
    return OwnData(args.task, check_name(args.task_name or args.task), columns_of(args), files, args.data, args.subset)


def columns_of(args: argparse.Namespace) -> Columns:
    """The columns that a parsed command line names, with their defaults."""
    tagging, choice = args.task == "tagging", args.task == "multiple-choice"
    if choice and not args.choice_columns:
        raise UserError("--task multiple-choice needs --choice-columns, one for each choice or one with lists of them")
    if args.choice_columns and not choice:
        raise UserError(f"--choice-columns is for --task multiple-choice, not {args.task}")
    if args.second_text_column is not None and tagging:
        raise UserError("--second-text-column is for texts, not for tagging; drop it")
    choices = tuple(args.choice_columns or ())
    if len(set(choices)) < len(choices):
        raise UserError(f"--choice-columns names a column twice: {', '.join(choices)}")
    second = args.second_text_column or ("text_pair" if args.task == "pairs" else None)
    text = args.text_column or ("tokens" if tagging else "text")
    columns = Columns(text, second, args.label_column or ("tags" if tagging else "label"), choices)
    named = [columns.text, *([second] if second else []), columns.label, *choices]
    if len(set(named)) < len(named):
        raise UserError(f"one column has two uses: {', '.join(named)}; name different columns")
    return columns
