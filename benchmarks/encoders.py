"""Fine-tunes a trained encoder with `pipeline.finetune` and with `transformers.Trainer`, and compares scores and speed.

    python -m benchmarks.encoders --init DIR --data GLUE --out WORK [--tasks cola ...] [--publish NAME]

Both systems get the same files, hyperparameters, optimizer, steps, seeds and batches. The last weights are scored on
the dev set, which chooses no step; all test sets are predicted, too. `--by-length` gives Trainer batches of similar
lengths, from a worker. `--systems this random` compares with random weights in the same shape.

Each run is a part: WORK/TASK/SYSTEM-SEED.json. The same command goes on after the last part; an interrupted one begins
anew, so that its processor time is known. The page is written from the parts that are there, after each of them.
"""

import itertools
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared import report
from benchmarks.shared.commands import check_packages
from common.command_line import Parser, above_zero, below_one, entry_point, positive
from common.errors import UserError
from common.files import atomic
from common.files.json_files import read_object
from common.text import markdown_table
from pipeline.data import sampler
from pipeline.tasks.files import reading
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import find_task
from pipeline.tasks.task import Task, steps_of_epochs

SYSTEMS = {"this": "this project", "trainer": "Trainer", "random": "random weights"}
MEASURES = {"processor_seconds": -1, "examples_per_second": 1}  # of speed; -1 if less is better
TASKS = ("cola", "stsb", "rte", "mrpc", "sst2")
DROPOUT, WEIGHT_DECAY, EPS, WARMUP = 0.1, 0.01, 1e-6, 0.1

_NOTE = (
    "Scores are those of the weights after the last step: means over the seeds, whose number is in brackets, x 100, "
    "with half of their 95 % interval (Student's t). The processor time is of the whole run, with start-up and all "
    "evaluations, the speed of the steps each run's median (Trainer's by length: mean). Both: medians over the seeds."
)


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.encoders", description="A trained encoder here and in transformers.Trainer.")
    p.add_argument("--init", required=True, type=Path, metavar="DIR", help="an encoder that both systems open")
    p.add_argument("--data", required=True, metavar="DIR", help="GLUE")
    p.add_argument("--out", required=True, type=Path, metavar="WORK", help="directory of the parts")
    p.add_argument("--tasks", nargs="+", default=list(TASKS), metavar="TASK", help=f"tasks ({' '.join(TASKS)})")
    p.add_argument("--seeds", type=positive, default=3, metavar="N", help="seeds of each system (3)")
    p.add_argument("--epochs", type=above_zero, default=3.0, metavar="N", help="passes over the examples (3)")
    p.add_argument("--batch-size", type=positive, default=32, metavar="N", help="examples in a step (32)")
    p.add_argument("--learning-rate", type=below_one, default=5e-5, metavar="RATE", help="its peak (5e-5)")
    p.add_argument("--max-length", type=positive, default=128, metavar="N", help="tokens of a sequence (128)")
    p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of both systems (fp32)")
    p.add_argument("--threads", type=positive, default=1, metavar="N", help="threads of each system (1)")
    p.add_argument("--systems", nargs="+", choices=SYSTEMS, default=["this", "trainer"], help="(this trainer)")
    p.add_argument("--by-length", action="store_true", help="Trainer: batches of similar lengths, from a worker")
    p.add_argument("--publish", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    p.add_argument("--part", nargs=3, metavar=("TASK", "SYSTEM", "SEED"), help="make one part only")
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    check_packages("transformers", "accelerate")
    if args.part is not None:
        name, system, seed = args.part
        (run_trainer if system == "trainer" else run_this)(args, find_task(name), system, int(seed))
        return
    for name, system, seed in parts_of(args):
        if (path := part_path(args.out, name, system, seed)).exists():
            read_part(args, path)
        else:
            _start(args, argv, name, system, seed)
            publish(args)
    publish(args)


def parts_of(args: Any) -> Iterator[tuple[str, str, int]]:
    """Task, system and seed of each part. A seed of all tasks comes before the next seed."""
    for seed, name, system in itertools.product(range(args.seeds), args.tasks, args.systems):
        yield name, system, seed


def settings_of(args: Any) -> dict[str, Any]:
    """What all parts of a page have in common."""
    names = ("epochs", "batch_size", "learning_rate", "max_length", "precision", "threads")
    kept = {"init": args.init.absolute().name, "schedule": "linear"} | {name: getattr(args, name) for name in names}
    return kept | {"batches": "by length" if args.by_length else "same"}


def read_part(args: Any, path: Path) -> dict[str, Any]:
    """Reads the file of a part. UserError: it was made with other settings."""
    part = read_object(path, "remove it, and repeat the command")
    if part.get("settings") != settings_of(args):
        raise UserError(f"{path} was made with other settings, {part.get('settings')}; give another --out")
    return part


def part_path(out: Path, name: str, system: str, seed: int) -> Path:
    """The file of a part."""
    return out / name / f"{system}-{seed}.json"


def _start(args: Any, argv: Sequence[str], name: str, system: str, seed: int) -> None:
    """Makes a part in a process of its own, so that its processor time is known and its memory is given back."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
    words = [sys.executable, "-m", "benchmarks.encoders", *argv, "--part", name, system, str(seed)]
    if subprocess.run(words, env=environment, check=False).returncode:
        raise UserError(f"{name} with {SYSTEMS[system]}, seed {seed}, failed; see above")


def write_part(args: Any, name: str, system: str, seed: int, metrics: dict[str, float], speed: float) -> None:
    """Writes the file of a part, with the processor time of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = {"examples_per_second": speed, "processor_seconds": sum(one.ru_utime + one.ru_stime for one in used)}
    content = {"settings": settings_of(args), "metrics": metrics} | seconds
    path = part_path(args.out, name, system, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, json.dumps(content, indent=1) + "\n")


def length_of(args: Any, examples: int) -> tuple[int, int]:
    """The steps of a run, and those of its warm-up."""
    steps = steps_of_epochs(args.epochs, examples, args.batch_size)
    return steps, round(WARMUP * steps)


def run_this(args: Any, task: Task, system: str, seed: int) -> None:
    """Trains with `pipeline.finetune`, which evaluates after its last step only."""
    steps, warmup = length_of(args, len(reading.read(task, args.data)["train"]))
    run = args.out / task.name / f"{system}-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    run.parent.mkdir(parents=True, exist_ok=True)
    params = {"lr": args.learning_rate, "betas": [0.9, 0.999], "eps": EPS, "weight_decay": WEIGHT_DECAY}
    json_path = args.out / "adamw.json"
    optimizer = {"type": "AdamW", "params": params}
    # Trainer's "linear". The paper's schedule is lower by the share of the warm-up in every step after it.
    scheduler = {"type": "WarmupDecayLR", "params": {"warmup_type": "linear"}}
    sizes = {"train_batch_size": args.batch_size, "gradient_clipping": 1.0}
    atomic.write_text(json_path, json.dumps(sizes | {"optimizer": optimizer, "scheduler": scheduler}))
    words = [
        sys.executable, "-m", "pipeline.finetune", "--task", task.name, "--init", args.init, "--data", args.data,
        "--output", run, "--deepspeed_config", json_path, "--steps", steps, "--warmup-steps", warmup,
        "--eval-interval", steps, "--log-interval", max(1, steps // 8), "--max-length", args.max_length,
        "--dropout", DROPOUT, "--classifier-dropout", DROPOUT, "--precision", args.precision, "--seed", seed,
        *(["--random-weights"] if system == "random" else []),
    ]  # fmt: skip
    if subprocess.run(list(map(str, words)), check=False).returncode:
        raise UserError(f"pipeline.finetune failed in {run}")
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    speeds = [record["rows_per_second"] for record in map(json.loads, lines) if record["split"] == "train"]
    dev = task.kind.predictions.load(run / "logits" / f"{task.dev_splits[0]}{task.kind.ending}")
    write_part(args, task.name, system, seed, task.kind.metrics(task, dev), float(np.median(speeds)))


def run_trainer(args: Any, task: Task, system: str, seed: int) -> None:
    """Trains with `transformers.Trainer`, padded to the longest sequence of each batch."""
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    transformers.utils.logging.set_verbosity_error()
    splits = reading.read(task, args.data)
    steps, warmup = length_of(args, len(splits["train"]))
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.init)
    fields = {"hidden_dropout_prob": DROPOUT, "attention_probs_dropout_prob": DROPOUT, "num_labels": len(task.labels)}
    transformers.set_seed(seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(args.init, **fields)

    def encoded(examples: Sequence[Any]) -> list[dict[str, Any]]:
        pairs = [[one.first for one in examples]]
        pairs += [[one.second for one in examples]] if examples[0].second is not None else []
        columns = tokenizer(*pairs, truncation=True, max_length=args.max_length)
        labels = [float(one.label or 0) if task.kind.predicts_numbers else one.label or 0 for one in examples]
        return [dict(zip((*columns, "labels"), row)) for row in zip(*columns.values(), labels)]

    # The batches of `pipeline.finetune`, in their order, which alone changes a score by points.
    train = encoded(splits["train"])
    _, order = sampler.rows_at(np.arange(steps * args.batch_size), len(train), seed)
    ends: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *arguments: Any, **more: Any) -> None:
            ends.append(time.perf_counter())

    settings = {"max_steps": steps, "warmup_steps": warmup, "lr_scheduler_type": "linear", "seed": seed}
    settings |= {"learning_rate": args.learning_rate, "weight_decay": WEIGHT_DECAY, "adam_epsilon": EPS}
    settings |= {f"per_device_{split}_batch_size": args.batch_size for split in ("train", "eval")}
    settings |= {"train_sampling_strategy": "group_by_length" if args.by_length else "sequential"}
    settings |= {"dataloader_num_workers": int(args.by_length), "bf16": args.precision == "bf16", "max_grad_norm": 1.0}
    settings |= {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    settings |= {"use_cpu": not torch.cuda.is_available(), "output_dir": str(args.out / task.name / f"{system}-{seed}")}
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(**settings),
        train_dataset=train if args.by_length else [train[row] for row in order.tolist()],
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        callbacks=[Clock()],
    )
    trainer.train()
    trainer.args.train_sampling_strategy = "sequential"  # else the predictions are in another order than the examples
    for split in sorted(splits.keys() - {"train"}, key=lambda split: split == task.dev_splits[0]):
        examples = sorted(splits[split], key=lambda one: len(one.first + (one.second or "")))
        logits = trainer.predict(encoded(examples)).predictions  # (N, C), in the end those of the dev set
    labels, ids = np.array([one.label for one in examples]), np.array([one.id for one in examples])
    found = Logits(ids, np.asarray(logits, dtype=np.float32), labels)
    average = np.mean if args.by_length else np.median  # by length, most steps are shorter than the mean
    speed = args.batch_size / float(average(np.diff(ends)))  # without the first step
    write_part(args, task.name, system, seed, task.kind.metrics(task, found), speed)


def publish(args: Any) -> None:
    """Prints the page of the parts that are there, and writes it if --publish is given."""
    paths = {part: part_path(args.out, *part) for part in parts_of(args)}
    found = {part: read_part(args, path) for part, path in paths.items() if path.exists()}
    result: dict[str, Any] = report.describe_host("encoders 1", ("torch", "transformers", "deepspeed")) | {
        "settings": settings_of(args),
        "tasks": [summarise(name, found) for name in args.tasks if (name, "this", 0) in found],
    }
    report.publish(args.publish, result, markdown(result))


def summarise(name: str, found: dict[tuple[str, str, int], dict[str, Any]]) -> dict[str, Any]:
    """The scores of a task by system and seed, and how many times as fast this project was, by the median ratio."""
    parts = {key[1:]: part for key, part in found.items() if key[0] == name}
    systems = [system for system in SYSTEMS if any(key[0] == system for key in parts)]
    metric = find_task(name).metrics[0]
    scores = {of: {metric: [part["metrics"][metric] for key, part in parts.items() if key[0] == of]} for of in systems}
    both = [seed for system, seed in parts if system == "this" and ("trainer", seed) in parts]
    ratios = {
        measure: float(
            np.median([(parts["this", n][measure] / parts["trainer", n][measure]) ** sign for n in both] or [math.nan])
        )
        for measure, sign in MEASURES.items()
    }
    gains = [parts["this", n]["metrics"][metric] - parts["trainer", n]["metrics"][metric] for n in both]
    return {"task": name, "scores": scores, "times_as_fast": ratios, "seeds_of_both": both, "differences": gains}


def markdown(result: dict[str, Any]) -> str:
    """The results as Markdown."""
    hardware, settings = result["hardware"], result["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    rows = []
    is_paired = settings.get("batches") == "same"  # the first page has none of them
    for task in result["tasks"]:
        (metric,) = task["scores"]["this"]
        cells = [_score(task["scores"].get(system, {}).get(metric, [])) for system in SYSTEMS]
        fast = [f"{task['times_as_fast'][measure]:.2f}".replace("nan", "") for measure in MEASURES]
        rows.append([task["task"], metric, *cells, *[_score(task.get("differences", []))] * is_paired, *fast])
    header = ["task", "metric", *SYSTEMS.values(), *["difference, same batches"] * is_paired]
    header += ["times as fast, processor time", "times as fast, steps"]
    return "\n".join(
        [
            f"{settings['init']} on GLUE's dev sets; {hardware['name']}, {hardware['cores']} cores; {versions}; "
            f"{result['date']}",
            "",
            f"{settings['epochs']:g} epochs, batch {settings['batch_size']}, peak rate {settings['learning_rate']:g} "
            f"after {100 * WARMUP:.0f} % of the steps, then linear decay; AdamW, weight decay {WEIGHT_DECAY:g}, "
            f"dropout {DROPOUT:g}, up to {settings['max_length']} tokens, {settings['precision']}, "
            f"{settings['threads']} thread(s) each{'; Trainer: by length' * (settings.get('batches') == 'by length')}.",
            "",
            markdown_table(header, rows, "ll" + "r" * (len(header) - 2)),
            "",
            _NOTE,
        ]
    )


def _score(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean, half = report.seeds_interval([100 * value for value in values])
    return f"{mean:.1f}" + ("" if math.isnan(half) else f" ± {half:.1f}") + f" ({len(values)})"


if __name__ == "__main__":
    sys.exit(main())
