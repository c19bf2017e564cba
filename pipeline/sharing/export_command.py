"""The work of `pipeline.export`: chooses the checkpoints of a run, exports them, and pushes them to the hub."""

import argparse
from collections.abc import Callable
from pathlib import Path

from common.command_line import Parser, positive
from common.errors import UserError
from common.files import owned
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.retention import step_of
from pipeline.sharing import selection
from pipeline.sharing.card import UNKNOWN_LICENSE, CardOptions
from pipeline.sharing.export import ExportOptions, Source, export_each, export_one
from pipeline.sharing.hub_repository import MAIN, Hub


def parser(description: str) -> Parser:
    """The command line of `pipeline.export`."""
    p = Parser(prog="python -m pipeline.export", description=description)
    p.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of a run")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory to write")
    which = p.add_mutually_exclusive_group()
    which.add_argument("--step", type=positive, metavar="N", help="the checkpoint of this step")
    which.add_argument(
        "--best",
        action="store_true",
        help="the checkpoint with the lowest held-out loss; of a fine-tuning run, with the best metric",
    )
    which.add_argument("--all", action="store_true", help="every checkpoint, each in DIR/step-N")
    p.add_argument("--onnx", action="store_true", help="also write model.onnx, for ONNX Runtime")
    p.add_argument(
        "--license",
        default=UNKNOWN_LICENSE,
        metavar="ID",
        help=f"the model's license, as the hub spells it, such as apache-2.0 (default: {UNKNOWN_LICENSE}, not stated)",
    )
    p.add_argument(
        "--language", nargs="+", default=[], metavar="CODE", help="languages of the text, such as en (default: none)"
    )
    p.add_argument("--push", metavar="OWNER/NAME", help="also push to this repository of the Hugging Face hub")
    p.add_argument("--public", action="store_true", help="make a new repository public (default: private)")
    return p


def run(args: argparse.Namespace, open_source: Callable[[Path], Source]) -> None:
    """Exports as the parsed command line asks, and prints what was written.

    Args:
        open_source: makes the source of a run.
    Raises:
        UserError: a mistake. Nothing is written then, unless the hub refuses what the export has made.
    """
    if args.public and args.push is None:
        raise UserError("--public says how --push makes a repository; give --push OWNER/NAME, or leave it out")
    options = ExportOptions(CardOptions(args.license, tuple(args.language)), args.onnx, args.push)
    options.check()
    owned.check_replaceable(args.out, run_directory.EXPORT_TOOL)
    _check_is_a_run(args.run)
    source = open_source(args.run)
    tags, on_main = _chosen(source, args)
    hub = None if args.push is None else Hub(args.push)
    if hub is not None:
        hub.check()
    if args.all:
        form = export_each(source, tags, args.out, options)
        places = ", ".join(selection.revision_of(tag) for tag in tags)
        print(f"wrote {args.out} {form}: {places}")
    else:
        form = export_one(source, tags[0], args.out, options)
        print(f"wrote {args.out} {form}")
    if hub is not None:
        _push(hub, tags, on_main, args)


def _check_is_a_run(run: Path) -> None:
    seeds = sorted(path.parent for path in run.glob("seed-*/settings.json"))
    if seeds and not (run / "settings.json").exists():
        raise UserError(f"--run {run} holds a run of several seeds; name one of them, such as {seeds[0]}")


def _chosen(source: Source, args: argparse.Namespace) -> tuple[list[Path], Path | None]:
    """The checkpoints to export, and the one of them that main gets on the hub; None if main stays as it is."""
    if args.step is not None:
        return [selection.checkpoint_of_step(source.run, args.step)], None
    if not args.all:
        tag = source.best() if args.best else source.usual()
        return [tag], tag
    usual, tags = source.usual(), selection.every_checkpoint(source.run)
    return tags, usual if usual in tags else tags[-1]  # a run that is training may have deleted it meanwhile


def _push(hub: Hub, tags: list[Path], on_main: Path | None, args: argparse.Namespace) -> None:
    """Pushes each exported checkpoint to its branch, and `on_main` to main as well."""
    hub.create(args.public)
    names = owned.files_of(args.out, run_directory.EXPORT_TOOL)
    pushed = []
    for tag in tags:
        revision = selection.revision_of(tag)
        prefix = f"{revision}/" if args.all else ""
        files = {name.removeprefix(prefix): args.out / name for name in names if name.startswith(prefix)}
        branches = [revision, MAIN] if tag == on_main else [revision]
        for branch in branches:
            hub.push(files, branch, f"Step {step_of(tag):,}")
        pushed += branches
    main = "" if on_main is None else f"; {MAIN} has step {step_of(on_main)}"
    print(f"pushed to {hub.url}: {', '.join(pushed)}{main}")
