"""Summarises and compares runs.

python -m pipeline.evaluate summary --run runs/base
python -m pipeline.evaluate tables --runs runs --out tables
python -m pipeline.evaluate claims --runs reproduction/small --out claims
python -m pipeline.evaluate ensemble --runs runs/large/rte runs/base/rte --out runs/ensemble
python -m pipeline.evaluate compare --runs runs/base --random runs/random --out comparison
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import atomic, owned
from common.text import quantity
from pipeline.analysis.compared_runs import sustained_speed
from pipeline.checkpoint import run_directory as runs
from pipeline.training import metrics_log, rollback


def summary(run: Path, export: Path | None = None) -> str:
    """A short table of a pre-training run: its last evaluation, its speed, and its files.

    Raises:
        UserError: `run` holds no run, a fine-tuning run, or a run without an evaluation on held-out rows.
    """
    settings = runs.read_settings(run)
    if "objective" not in settings:
        raise UserError(f"{run} is a fine-tuning run; its metrics are in {run / 'results.json'}, or use `compare`")
    evaluation = metrics_log.last_record(run, "eval")
    training = metrics_log.last_record(run, "train")
    if evaluation is None or training is None:
        raise UserError(f"{run} has not been evaluated; train it with --eval-data DIR")
    task = settings["objective"]
    shown = ["mlm_loss", "mlm_unigram_entropy", "mlm_accuracy", "predictions"]
    if f"{task}_accuracy" in evaluation:
        shown += [f"{task}_accuracy", f"{task}_accuracy_low", f"{task}_accuracy_high", "pairs"]
    for record, names in ((evaluation, shown), (training, ["tokens", "tokens_per_second", "seconds"])):
        if lost := [name for name in names if record.get(name) is None]:
            raise UserError(f"{run / metrics_log.METRICS} has no {lost[0]} in its last line; train {run} on")
    speed = sustained_speed(metrics_log.read_records(run, "train"))
    if speed is None:
        raise UserError(f"{run / metrics_log.METRICS} has no speed; train {run} on")
    loss, floor = evaluation["mlm_loss"], evaluation["mlm_unigram_entropy"]
    ranks = settings.get("world_size")
    on_ranks = "" if ranks is None else f" on {quantity(ranks, 'rank')}"
    below = 100 * (1 - loss / floor) if floor > 0 else 0.0
    rows = [
        ("steps", f"{training['step']:,} of {settings['steps']:,}, {training['tokens']:,} tokens"),
        (
            "held-out MLM loss",
            f"{loss:.3f} nats, {abs(below):.1f} % {'below' if below >= 0 else 'above'} the unigram entropy {floor:.3f}",
        ),
        ("held-out MLM accuracy", f"{100 * evaluation['mlm_accuracy']:.1f} % of {evaluation['predictions']:,} tokens"),
    ]
    if f"{task}_accuracy" in evaluation:
        accuracy, low, high = (100 * evaluation[f"{task}_accuracy{end}"] for end in ("", "_low", "_high"))
        interval = f"95 % interval {low:.1f} to {high:.1f}"
        rows.append(
            (f"held-out {task.upper()} accuracy", f"{accuracy:.1f} % ({interval}) of {evaluation['pairs']:,} pairs")
        )
    rows += [
        (
            "training speed",
            f"{speed:,.0f} tokens/s in {settings.get('precision', 'unknown precision')}",
        ),
        ("time", f"{training['seconds']:.0f} s{on_ranks}"),
        *([("divergence", rollback.describe(rollbacks))] if (rollbacks := rollback.read(run)) else []),
        ("run", str(run)),
        ("TensorBoard logs", str(run / "tensorboard")),
        ("exported model", str(export if export is not None else run / "export")),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    return "\n".join([*lines, "", "to see the curves:", f"  tensorboard --logdir {run / 'tensorboard'}"])


def tables(args: argparse.Namespace) -> str:
    """`tables`: writes the paper's tables, and returns their text and their files."""
    from pipeline.analysis import finished_runs
    from pipeline.paper.printed_tables import find_table
    from pipeline.paper.tables import Evidence, write_tables

    names = [find_table(name).name for name in args.tables]
    runs = finished_runs.find_runs(args.runs)
    evidence = Evidence(
        runs, finished_runs.find_pretrained(args.runs, runs), finished_runs.digest_of(args.additional_data)
    )
    written = write_tables(evidence, args.out, names)
    lines = [written[0].read_text(encoding="utf-8"), f"written: {', '.join(map(str, written))}"]
    if lost := [str(run.directory) for run in runs if not run.origins and not run.results.get("random_weights")]:
        lines.append(f"in no table, because their pre-training run was not found: {', '.join(lost)}")
    return "\n".join(lines)


def claims(args: argparse.Namespace) -> str:
    """`claims`: writes the page of the paper's claims in small, and returns its text and its files."""
    from pipeline.paper import claims_page

    written = claims_page.write(args.runs, args.out)
    return f"{written[0].read_text(encoding='utf-8')}\nwritten: {', '.join(map(str, written))}"


def ensemble(args: argparse.Namespace) -> str:
    """`ensemble`: averages the runs of each task, and returns the metrics of the averages."""
    from pipeline.analysis import finished_runs
    from pipeline.analysis.ensemble import write_ensembles

    lines = []
    for written in write_ensembles(finished_runs.find_runs(args.runs), args.out):
        lines.append(f"{written['task']}: {written['members']} members, {args.out / written['task']}")
        for split, metrics in written["metrics"].items():
            lines.append(f"  {split}: " + ", ".join(f"{name} {value:.4g}" for name, value in metrics.items()))
    return "\n".join(lines)


def compare(args: argparse.Namespace) -> str:
    """`compare`: metrics beside the majority class and random weights, with 95 % intervals."""
    from pipeline.analysis import comparison, finished_runs

    if args.out is not None:
        owned.check_addable(args.out, ["comparison.md", "comparison.json"])
    found = comparison.compare(finished_runs.find_runs(args.runs), finished_runs.find_runs(args.random))
    if not found:
        raise UserError("none of the runs has predictions of labelled examples; fine-tune with a dev split")
    text = comparison.markdown(found)
    if args.out is not None:
        with owned.adding_files(args.out, "pipeline.evaluate compare") as place:
            atomic.write_text(place / "comparison.md", text)
            atomic.write_text(place / "comparison.json", json.dumps(comparison.as_json(found), indent=1) + "\n")
    return text


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.evaluate", description=__doc__.splitlines()[0])
    commands = p.add_subparsers(dest="command", required=True)

    command = commands.add_parser("summary", help="a short table of a pre-training run")
    command.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of pipeline.pretrain")
    command.add_argument("--export", type=Path, metavar="DIR", help="directory of the exported model (RUN/export)")
    command.set_defaults(run_command=lambda args: summary(args.run, args.export))

    def add(name: str, function: Callable[[argparse.Namespace], str], summary_line: str, out_required: bool) -> Parser:
        command = commands.add_parser(name, help=summary_line)
        command.add_argument(
            "--runs", nargs="+", required=True, type=Path, metavar="DIR", help="directories to search for runs"
        )
        command.add_argument("--out", required=out_required, type=Path, metavar="DIR", help="directory to write")
        command.set_defaults(run_command=function)
        return command

    command = add("tables", tables, "the paper's tables with measured and printed values", True)
    command.add_argument("--tables", nargs="+", default=[], metavar="N", help="numbers of the tables, 2 to 10 (all)")
    command.add_argument(
        "--additional-data", type=Path, metavar="DIR", help="shards of the runs with more data (Table 7, Figure 2)"
    )
    command = commands.add_parser("claims", help="the page of `pipeline.reproduce --scale small` from what has ended")
    command.add_argument("--runs", required=True, type=Path, metavar="DIR", help="DIR/small of pipeline.reproduce")
    command.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory to write")
    command.set_defaults(run_command=claims)
    add("ensemble", ensemble, "the average of several runs' predictions for each task, and its submissions", True)
    command = add("compare", compare, "metrics beside the majority class and random weights", False)
    command.add_argument(
        "--random",
        nargs="+",
        default=[],
        type=Path,
        metavar="DIR",
        help="directories to search for runs from random weights",
    )
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs one of the commands and prints its table. UserError: a mistake."""
    args = parser().parse_args(argv)
    print(args.run_command(args))


if __name__ == "__main__":
    sys.exit(main())
