"""What runs have come to.

python -m pipeline.evaluate summary --run runs/base
python -m pipeline.evaluate tables --runs runs --out tables
python -m pipeline.evaluate ensemble --runs runs/large/rte runs/base/rte --out runs/ensemble
python -m pipeline.evaluate compare --runs runs/base --random runs/random --out comparison
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from data_prep import atomic
from data_prep.command_line import Parser
from data_prep.errors import UserError
from pipeline import monitor, runs


def summary(run: Path, export: Path | None = None) -> str:
    """A run's last evaluation, its speed, and where everything is, as a short table.

    Raises:
        UserError: `run` holds no run, or one that has not been evaluated on held-out rows yet.
    """
    settings = runs.read_settings(run)
    if "objective" not in settings:
        raise UserError(f"{run} is a fine-tuning run; its figures are in {run / 'results.json'}, or use `compare`")
    evaluation = monitor.last_record(run, "eval")
    training = monitor.last_record(run, "train")
    if evaluation is None or training is None:
        raise UserError(f"{run} has not been evaluated; train it with --eval-data DIR")
    loss, floor = evaluation["mlm_loss"], evaluation["mlm_unigram_entropy"]
    rows = [
        ("steps", f"{training['step']:,} of {settings['steps']:,}, {training['tokens']:,} tokens"),
        (
            "held-out MLM loss",
            f"{loss:.3f} nats, {100 * (1 - loss / floor):.1f} % below the unigram entropy {floor:.3f}",
        ),
        ("held-out MLM accuracy", f"{100 * evaluation['mlm_accuracy']:.1f} % of {evaluation['predictions']:,} tokens"),
    ]
    task = settings["objective"]
    if f"{task}_accuracy" in evaluation:
        accuracy, low, high = (100 * evaluation[f"{task}_accuracy{end}"] for end in ("", "_low", "_high"))
        interval = f"95 % interval {low:.1f} to {high:.1f}"
        rows.append(
            (f"held-out {task.upper()} accuracy", f"{accuracy:.1f} % ({interval}) of {evaluation['pairs']:,} pairs")
        )
    rows += [
        ("training speed", f"{training['tokens_per_second']:,.0f} tokens/s in {settings['precision']}"),
        ("time", f"{training['seconds']:.0f} s on {settings['world_size']} ranks"),
        ("run", str(run)),
        ("TensorBoard logs", str(run / "tensorboard")),
        ("exported model", str(export if export is not None else run / "export")),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    return "\n".join([*lines, "", "to see the curves:", f"  tensorboard --logdir {run / 'tensorboard'}"])


def tables(args: argparse.Namespace) -> str:
    """`tables`: writes the paper's tables, and says where."""
    from pipeline.tasks import results
    from pipeline.tasks.paper import find_table
    from pipeline.tasks.tables import Evidence, write_tables

    names = [find_table(name).name for name in args.tables]
    runs = results.find_runs(args.runs)
    evidence = Evidence(runs, results.find_pretrained(args.runs, runs), results.digest_of(args.additional_data))
    written = write_tables(evidence, args.out, names)
    lines = [written[0].read_text(encoding="utf-8"), f"written: {', '.join(map(str, written))}"]
    if lost := [str(run.directory) for run in runs if not run.origins and not run.results.get("random_weights")]:
        lines.append(f"in no table, as the pre-training that they started from is not there: {', '.join(lost)}")
    return "\n".join(lines)


def ensemble(args: argparse.Namespace) -> str:
    """`ensemble`: averages the runs of each task, and says what that gives."""
    from pipeline.tasks import results
    from pipeline.tasks.ensemble import write_ensembles

    lines = []
    for written in write_ensembles(results.find_runs(args.runs), args.out):
        lines.append(f"{written['task']}: {written['members']} members, {args.out / written['task']}")
        for split, figures in written["metrics"].items():
            lines.append(f"  {split}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    return "\n".join(lines)


def compare(args: argparse.Namespace) -> str:
    """`compare`: figures beside the majority class and random weights, with their intervals."""
    from pipeline.tasks import comparison, results

    found = comparison.compare(results.find_runs(args.runs), results.find_runs(args.random))
    if not found:
        raise UserError("none of the runs has predictions of labelled examples; fine-tune with a dev split")
    text = comparison.markdown(found)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        atomic.write_text(args.out / "comparison.md", text)
        atomic.write_text(args.out / "comparison.json", json.dumps(comparison.as_json(found), indent=1) + "\n")
    return text


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.evaluate", description=__doc__.splitlines()[0])
    commands = p.add_subparsers(dest="command", required=True)

    command = commands.add_parser("summary", help="a pre-training run as a short table")
    command.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of pipeline.pretrain")
    command.add_argument("--export", type=Path, metavar="DIR", help="where the model was exported (RUN/export)")
    command.set_defaults(run_command=lambda args: summary(args.run, args.export))

    def add(name: str, function: Callable[[argparse.Namespace], str], summary_line: str, out_required: bool) -> Parser:
        command = commands.add_parser(name, help=summary_line)
        command.add_argument("--runs", nargs="+", required=True, type=Path, metavar="DIR", help="searched for runs")
        command.add_argument("--out", required=out_required, type=Path, metavar="DIR", help="directory to write")
        command.set_defaults(run_command=function)
        return command

    command = add("tables", tables, "the paper's tables, measured beside printed", True)
    command.add_argument("--tables", nargs="+", default=[], metavar="N", help="which (all): 2 to 10")
    command.add_argument(
        "--additional-data", type=Path, metavar="DIR", help="shards of the runs that had more data (Table 7, Figure 2)"
    )
    add("ensemble", ensemble, "the mean of several runs' predictions, a task each, and its submissions", True)
    command = add("compare", compare, "dev figures beside the majority class and random weights", False)
    command.add_argument(
        "--random", nargs="+", default=[], type=Path, metavar="DIR", help="searched for runs from random weights"
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    try:
        args = parser().parse_args(argv)
        print(args.run_command(args))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}; choose another place", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
