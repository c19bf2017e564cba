"""Fine-tunes on SST-2 with `transformers.Trainer`, as its users do, and prints examples per second as JSON.

    python -m benchmarks.shared.trainer_reference --init EXPORT --data GLUE --steps 60 --padding longest --threads 2

Weights, tokens, batch, learning rate and precision (fp32) are those of `pipeline.finetune`. Texts are padded to the
longest of the batch, or all to --max-length, as the library's example script does. The first quarter of the steps does
not count.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from common.command_line import Parser, entry_point
from pipeline.tasks.examples import TextExample
from pipeline.tasks.files import reading
from pipeline.tasks.registry import find_task


class Clock(transformers.TrainerCallback):
    """Records when each step has ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *arguments: Any, **more: Any) -> None:
        """Called by the trainer."""
        self.times.append(time.perf_counter())


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    p = Parser(prog="python -m benchmarks.shared.trainer_reference", description="SST-2 with transformers.Trainer.")
    p.add_argument("--init", required=True, type=Path, metavar="DIR", help="an export")
    p.add_argument("--data", required=True, metavar="DIR", help="GLUE, or its SST-2")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--padding", choices=("longest", "max_length"), default="longest")
    p.add_argument("--max-length", type=int, default=128)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_all(argv)
    torch.set_num_threads(args.threads)
    transformers.utils.logging.set_verbosity_error()
    print(json.dumps({"examples_per_second": examples_per_second(args)}))


def examples_per_second(args: argparse.Namespace) -> float:
    """Examples per second in the last three quarters of the steps."""
    read = reading.read(find_task("sst2"), args.data)["train"][: args.steps * args.batch_size * 4]
    examples = [example for example in read if isinstance(example, TextExample)]  # all: SST-2 has no others
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.init)
    padded = {"padding": "max_length"} if args.padding == "max_length" else {}
    texts = [example.first for example in examples]
    encoded = tokenizer(texts, truncation=True, max_length=args.max_length, **padded)
    rows = [
        {"input_ids": ids, "token_type_ids": types, "attention_mask": mask, "labels": example.label}
        for ids, types, mask, example in zip(
            encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"], examples
        )
    ]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(args.init, num_labels=2)
    clock = Clock()
    with tempfile.TemporaryDirectory() as scratch:
        settings = transformers.TrainingArguments(
            output_dir=scratch,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch_size,
            learning_rate=1e-5,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        trainer = transformers.Trainer(
            model=model,
            args=settings,
            train_dataset=rows,
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            callbacks=[clock],
        )
        trainer.train()
    first = args.steps // 4
    return args.batch_size * (args.steps - 1 - first) / (clock.times[-1] - clock.times[first])


if __name__ == "__main__":
    sys.exit(main())
