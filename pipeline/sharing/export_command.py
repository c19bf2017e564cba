"""The work of `pipeline.export`: chooses the checkpoints of a run, exports them, and pushes them to the hub."""

import argparse
from pathlib import Path

from common.errors import UserError
from common.files import owned
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.retention import step_of
from pipeline.sharing.card import CardOptions
from pipeline.sharing.export import ExportOptions, export_each, export_one, revision_of
from pipeline.sharing.hub_repository import MAIN, Hub
from pipeline.sharing.trained_run import TrainedRun, open_run


def run(args: argparse.Namespace) -> None:
    """Exports as the parsed command line asks, and prints what was written.

    Raises:
        UserError: a mistake. Nothing is written then, unless the hub refuses what the export has made.
    """
    if args.public and args.push is None:
        raise UserError("--public says how --push makes a repository; give --push OWNER/NAME, or leave it out")
    options = ExportOptions(CardOptions(args.license, tuple(args.language)), args.onnx, args.push)
    options.check()
    owned.check_replaceable(args.out, run_directory.EXPORT_TOOL)
    _check_is_a_run(args.run)
    trained = open_run(args.run)
    tags, on_main = _chosen(trained, args)
    hub = None if args.push is None else Hub(args.push)
    if hub is not None:
        hub.check()
    if args.all:
        form = export_each(trained, tags, args.out, options)
        places = ", ".join(revision_of(tag) for tag in tags)
        print(f"wrote {args.out} {form}: {places}")
    else:
        form = export_one(trained, tags[0], args.out, options)
        print(f"wrote {args.out} {form}")
    if hub is not None:
        _push(hub, tags, on_main, args)


def _check_is_a_run(run: Path) -> None:
    seeds = sorted(path.parent for path in run.glob("seed-*/settings.json"))
    if seeds and not (run / "settings.json").exists():
        raise UserError(f"--run {run} holds a run of several seeds; name one of them, such as {seeds[0]}")


def _chosen(trained: TrainedRun, args: argparse.Namespace) -> tuple[list[Path], Path | None]:
    """The checkpoints to export, and the one of them that main gets on the hub; None if main stays as it is."""
    if args.step is not None:
        return [trained.of_step(args.step)], None
    if not args.all:
        tag = trained.best() if args.best else trained.usual()
        return [tag], tag
    usual, tags = trained.usual(), trained.every()
    return tags, usual if usual in tags else tags[-1]  # a run that is training may have deleted it meanwhile


def _push(hub: Hub, tags: list[Path], on_main: Path | None, args: argparse.Namespace) -> None:
    """Pushes each exported checkpoint to its branch, and `on_main` to main as well."""
    hub.create(args.public)
    names = owned.files_of(args.out, run_directory.EXPORT_TOOL)
    pushed = []
    for tag in tags:
        revision = revision_of(tag)
        prefix = f"{revision}/" if args.all else ""
        files = {name.removeprefix(prefix): args.out / name for name in names if name.startswith(prefix)}
        branches = [revision, MAIN] if tag == on_main else [revision]
        for branch in branches:
            hub.push(files, branch, f"Step {step_of(tag):,}")
        pushed += branches
    main = "" if on_main is None else f"; {MAIN} has step {step_of(on_main)}"
    print(f"pushed to {hub.url}: {', '.join(pushed)}{main}")
