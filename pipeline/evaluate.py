"""What runs have come to.

python -m pipeline.evaluate summary --run runs/base
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep.command_line import Parser
from data_prep.errors import UserError
from pipeline import monitor


def summary(run: Path, export: Path | None = None) -> str:
    """A run's last evaluation, its speed, and where everything is, as a short table.

    Raises:
        UserError: `run` holds no run, or one that has not been evaluated on held-out rows yet.
    """
    settings_path = run / "settings.json"
    if not settings_path.exists():
        raise UserError(f"{run} holds no run (no settings.json); name the --output of pipeline.pretrain")
    settings: dict[str, Any] = json.loads(settings_path.read_text(encoding="utf-8"))
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = Parser(prog="python -m pipeline.evaluate", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("summary", help="a pre-training run as a short table")
    command.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of pipeline.pretrain")
    command.add_argument("--export", type=Path, metavar="DIR", help="where the model was exported (RUN/export)")
    try:
        args = parser.parse_args(argv)
        print(summary(args.run, args.export))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
