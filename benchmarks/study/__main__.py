"""Pre-trains one small model on real text, fine-tunes it, and writes a page with plots (docs/study.md).

    python -m benchmarks.study --data-root DIR --out study [--hours 3] [--plan full]

DIR has text in wikipedia/ (.bz2 exports, .jsonl) and books/ (.txt), and official task files as `pipeline.reproduce`
reads them: glue/, squad/, race/. Everything is made below --out. The command can be stopped at any time; the same
command goes on where it was. Writes OUT/page/study.md, study.json and curves.png.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.shared import report
from benchmarks.shared.commands import Command, run
from benchmarks.study import finetune, page, tasks, text
from benchmarks.study.finetune import Job
from benchmarks.study.plan import PLANS, Plan
from common.command_line import Parser, entry_point, hours, positive
from common.errors import UserError
from common.files import atomic, outputs
from common.files.json_files import read_object
from data_prep.text.vocabulary import Vocabulary
from pipeline.reproduce import find_task_data
from pipeline.tasks.registry import find_task
from pipeline.training.metrics_file import read_records

PRETRAINING_PART, FINETUNING_PART = 0.45, 0.42
"""Parts of the hours; the rest is for the data, the starts of the runs, evaluations and the page."""

SPEED_STEPS = 20
"""Steps that measure the speed, after as many that do not count."""

Pair = tuple[Job, Job]
"""The jobs of one task: from the pre-trained model, and from random weights."""


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.study", description="From real text to fine-tuned tasks, and a page.")
    p.add_argument("--data-root", required=True, type=Path, metavar="DIR", help="text and task files")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory of everything that is made")
    p.add_argument("--hours", type=hours, default=3.0, metavar="H", help="limit of the whole study (3)")
    p.add_argument("--plan", choices=PLANS, default="full", help="size of model and text (full)")
    p.add_argument("--ranks", type=positive, default=2, metavar="N", help="ranks of pre-training (2)")
    p.add_argument("--tasks", nargs="+", metavar="TASK", help="which tasks (all that DIR has)")
    return p


def _training(plan: Plan, corpora: Sequence[text.Corpus], out: Path, launcher: Sequence[str]) -> list[str]:
    """The words that every run of pre-training has in common; `main` writes its JSON."""
    words = [*launcher, "pipeline.pretrain", "--model", "albert-tiny"]
    words += ["--model-args", *(f"{name}={value}" for name, value in plan.model.items())]
    words += ["--data", *(str(out / "shards" / "train" / one.name) for one in corpora)]
    return [*words, "--deepspeed_config", str(out / "deepspeed.json"), *plan.flags]


def speed_run(plan: Plan, corpora: Sequence[text.Corpus], out: Path, launcher: Sequence[str]) -> Command:
    """A short run that measures how many tokens this machine reads a second."""
    words = [*_training(plan, corpora, out, launcher), "--output", str(out / "speed")]
    words += ["--steps", str(2 * SPEED_STEPS), "--log-interval", str(SPEED_STEPS)]
    return Command("measure the speed", tuple(words), out / "speed" / "done")


def pretraining(
    plan: Plan, corpora: Sequence[text.Corpus], out: Path, limit: float, launcher: Sequence[str], speed: float
) -> Command:
    """The command of pre-training.

    Args:
        limit: hours.
        speed: tokens a second. It decides the steps; a slower machine ends the schedule at the limit.
    """
    tokens_a_step = plan.pretraining["train_batch_size"] * plan.length
    steps = max(plan.evaluations, round(3600 * limit * speed / tokens_a_step))
    logged = max(1, steps // plan.evaluations // 5)
    often = 5 * logged  # every evaluation is at a logged step, which has the tokens and the time
    words = [*_training(plan, corpora, out, launcher), "--output", str(out / "pretrain")]
    words += ["--eval-data", *(str(out / "shards" / "held_out" / one.name) for one in corpora)]
    words += ["--eval-batches", str(plan.eval_batches)]
    words += ["--steps", str(steps), "--warmup-steps", str(steps // 20), "--max-hours", f"{limit:g}"]
    words += ["--eval-interval", str(often), "--log-interval", str(logged)]
    words += ["--save-interval", str(2 * often)]
    return Command("pre-train", tuple(words), out / "pretrain" / "done")


def check_model(plan: Plan, out: Path) -> None:
    """Raises UserError if an earlier start pre-trained another model in OUT."""
    settings = out / "pretrain" / "settings.json"
    if settings.exists():
        model = read_object(settings, "give another --out")["model"]
        if any(model[name] != value for name, value in plan.model.items()):
            raise UserError(f"{out} has a study of another model; give another --out, or move it away")


def tune(plan: Plan, found: dict[str, Path], out: Path, python: tuple[str, ...], tokens: float) -> list[Pair]:
    """Fine-tunes each task that there is time for. Returns the jobs.

    Args:
        tokens: that fine-tuning may read on all tasks together, with all its runs.
    """
    vocabulary = Vocabulary.load(out / "vocabulary.model")
    sizes = {name: tasks.size_of(find_task(name), data, vocabulary, plan) for name, data in found.items()}
    chosen = tasks.affordable(sizes, tokens, plan)
    pairs = []
    for name in chosen:
        limit, export = tokens / len(chosen), out / "pretrain" / "export"
        pair = finetune.jobs_of(find_task(name), sizes[name], limit, plan, export, out / "runs" / name)
        run([tuple(finetune.command(job, plan, python) for job in pair)], out)
        pairs.append(pair)
    return pairs


def tokens_a_second(run: Path) -> float:
    """Tokens that a run of `speed_run` has read a second, with all ranks; fine-tuning keeps as many cores busy.

    The difference of the last two records has all steps between them, also after a stop. The speed that a record itself
    has is that of the last start, maybe of a single step.
    """
    before, last = read_records(run, "train")[-2:]
    return float((last["tokens"] - before["tokens"]) / (last["seconds"] - before["seconds"]))


def write_page(
    plan: Plan, corpora: Sequence[text.Corpus], pairs: Sequence[Pair], left_out: Sequence[str], out: Path
) -> str:
    """Writes OUT/page and returns its text."""
    curves = page.curves_of(out / "pretrain", [corpus.name for corpus in corpora])
    seconds = next(iter(curves.values()))[-1]["seconds"]
    record: page.Record = {
        "format": "study 6",
        "facts": {
            "model": ", ".join(f"{name} {value}" for name, value in plan.model.items()),
            "vocabulary and rows": f"{plan.vocabulary_size:,} pieces, {plan.length} tokens",
            "pre-training": f"{seconds / 60:.0f} minutes",
            "machine": f"{report.processor()}, {report.cores()} cores",
        },
        "seeds": plan.seeds,
        "curves": curves,
        "tasks": [dataclasses.asdict(page.result_of(*pair)) for pair in pairs],
        "left_out": list(left_out),
    }
    words = page.markdown(record)
    with outputs.making(out / "page", "benchmarks.study") as place:
        atomic.write_text(place / "study.md", words)
        atomic.write_text(place / "study.json", json.dumps(record, indent=1) + "\n")
        page.plot(place / "curves.png", curves)
    return words


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    plan, python = PLANS[args.plan], (sys.executable, "-m")
    corpora, found = text.find_corpora(args.data_root), find_task_data(args.data_root, tasks.fits)
    if unknown := set(args.tasks or ()) - set(found):
        raise UserError(f"{args.data_root} has no data to train and evaluate {', '.join(sorted(unknown))}")
    chosen = {name: found[name] for name in args.tasks or found}
    launcher: tuple[str, ...] = python
    if args.ranks > 1:
        launcher = ("deepspeed", "--quiet", "--num_accelerators", str(args.ranks), "--module")
    args.out.mkdir(parents=True, exist_ok=True)
    check_model(plan, args.out)
    atomic.write_text(args.out / "deepspeed.json", json.dumps(plan.pretraining, indent=1) + "\n")
    shards = text.stages(corpora, plan.length, args.out, python, args.out / "vocabulary.model", plan.vocabulary_size)
    run([*shards, (speed_run(plan, corpora, args.out, launcher),)], args.out)
    speed = tokens_a_second(args.out / "speed")
    run([(pretraining(plan, corpora, args.out, PRETRAINING_PART * args.hours, launcher, speed),)], args.out)
    pairs = tune(plan, chosen, args.out, python, 3600 * FINETUNING_PART * args.hours * speed)
    left_out = sorted(set(chosen) - {trained.task.name for trained, _ in pairs})
    print(write_page(plan, corpora, pairs, left_out, args.out))


if __name__ == "__main__":
    sys.exit(main())
