"""From raw text to a model that scores, and a page that shows it (docs/experiments.md).

    python -m benchmarks.study --data-root DIR --out study [--minutes 180] [--plan cpu]

DIR has text in wikipedia/ (.bz2 exports, JSON Lines), corpus/ (JSON Lines) and books/ (.txt); official task
files in glue/, squad/ and race/; minimal pairs in blimp/. JSON Lines may be compressed. The
hardware decides the plan: on a GPU albert-base in ten minutes, else a model of two layers in three hours. Everything is
made below --out. The command can be stopped at any time; the same command goes on where it was. Writes
OUT/page/study.md, study.json and curves.png.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.shared import report
from benchmarks.shared.commands import run
from benchmarks.study import finetune, page, text
from benchmarks.study.finetune import choose_jobs
from benchmarks.study.plan import PLANS, Plan
from benchmarks.study.training import Training, check_earlier, chosen
from common.command_line import Parser, above_zero, entry_point, positive, price
from common.errors import UserError


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.study", description="From raw text to a model that scores, and a page.")
    p.add_argument("--data-root", required=True, type=Path, metavar="DIR", help="text, task files and minimal pairs")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory of everything that is made")
    p.add_argument("--minutes", type=above_zero, metavar="M", help="limit of the whole study (180; of gpu 10)")
    p.add_argument("--plan", choices=PLANS, help="size of model and text (by the hardware: cpu or gpu)")
    p.add_argument("--vocab", type=Path, metavar="FILE", help="a vocabulary (trained; of gpu that of DIR/spm)")
    p.add_argument("--ranks", type=positive, metavar="N", help="ranks of pre-training (2; 1 on a GPU)")
    p.add_argument("--tasks", nargs="+", metavar="TASK", help="which tasks (all that DIR has)")
    p.add_argument("--price", type=price, metavar="DOLLARS", help="of an hour of this machine, for the page")
    return p


def published_vocabulary(root: Path, plan: Plan) -> Path | None:
    """A vocabulary below `root` that has the size of the plan's; None if there is none."""
    found = sorted((root / "spm").glob("*.model")) if plan.vocabulary_size == 30_000 else []
    return found[0] if found else None


def minimal_pairs(root: Path) -> Path | None:
    """The file or the directory of minimal pairs below `root`; None if there is none."""
    files = sorted((root / "blimp").glob("*.jsonl*"))
    return None if not files else files[0] if len(files) == 1 else root / "blimp"


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    on_gpu = torch.cuda.is_available() and os.environ.get("DS_ACCELERATOR") != "cpu"
    plan, python = PLANS[args.plan or ("gpu" if on_gpu else "cpu")], (sys.executable, "-m")
    minutes, ranks = args.minutes or plan.minutes, args.ranks or (1 if on_gpu else 2)
    corpora, found = text.find_corpora(args.data_root), finetune.find_task_data(args.data_root)
    if unknown := set(args.tasks or ()) - set(found):
        raise UserError(f"{args.data_root} has no data to train and evaluate {', '.join(sorted(unknown))}")
    found = {name: found[name] for name in args.tasks or found}
    launcher = ("deepspeed", "--quiet", "--num_accelerators", str(ranks), "--module") if ranks > 1 else python
    args.out.mkdir(parents=True, exist_ok=True)
    check_earlier(plan, args.out, minutes)

    prepared = text.Preparation.on_all_cores(corpora, plan.length, args.out, python, report.cores())
    run(prepared.extract(), args.out)
    vocabulary = args.vocab or published_vocabulary(args.data_root, plan)
    if vocabulary is None:
        vocabulary = args.out / "vocabulary.model"
        run(prepared.train_vocabulary(vocabulary, plan.vocabulary_size), args.out)
    run(prepared.shards(vocabulary), args.out)

    training = Training(plan, corpora, args.out, python, launcher)
    run([training.probe()], args.out)
    probed, speed = training.probed(), training.speed(report.cores())
    choice = chosen(probed)
    print(f"the probe chose {choice.name}", flush=True)
    if not any(loss is not None and loss < entropy for _, loss, entropy in probed[choice][-1:]):
        print("note: its loss is not below the unigram entropy, so it uses no context yet", flush=True)
    run([(training.pretraining(choice, plan.pretraining * minutes / 60, speed),)], args.out)
    scored = minimal_pairs(args.data_root)
    scores = () if scored is None else training.minimal_pairs(scored)

    tokens = 60 * plan.finetuning * minutes * speed * plan.task_speed
    pairs = choose_jobs(plan, found, args.out, vocabulary, tokens)
    run([(*scores, *(finetune.command(job, plan, python) for pair in pairs for job in pair))], args.out)
    left_out = sorted(set(found) - {trained.task.name for trained, _ in pairs})
    print(page.write(training, choice, probed, pairs, left_out, args.price))


if __name__ == "__main__":
    sys.exit(main())
