"""Fine-tunes a pre-trained model on a task of the paper or on own files. The same command again resumes the run.

All GPUs of this machine, or its CPU if it has none, with the paper's hyperparameters:

    deepspeed --module pipeline.finetune --task sst2 --init runs/base --data GLUE/SST-2 --output runs/base-sst2

The median of five seeds, and a run that starts from the MNLI model as in the paper:

    deepspeed --module pipeline.finetune --task mnli --init runs/base --data GLUE/MNLI --output runs/base-mnli --seeds 5
    deepspeed --module pipeline.finetune --task rte --init runs/base-mnli/seed-0 --data GLUE/RTE --output runs/base-rte

Own files with the columns "text" and "label" (docs/own_tasks.md):

    deepspeed --module pipeline.finetune --task classification --init runs/base --data reviews --output runs/reviews

Without the launcher, on one rank: `python -m pipeline.finetune ...`.

Exit status of a rank: 0 done, or nothing left to do; 1 failed; 2 a mistake in the command; 69 another rank or host was
lost, or a rank holds wrong weights; 75 stopped by SIGTERM, SIGUSR1 or Ctrl-C after a save. After 69 and 75, start the
command again.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.distributed.exits import run_and_exit
from pipeline.run.launch import run_command
from pipeline.settings.finetune_flags import FinetuneFlags, parse

if TYPE_CHECKING:
    from pipeline.finetuning.fine_tuning import FineTuning


def make_tasks(flags: FinetuneFlags, world_size: int) -> "list[FineTuning]":
    """Checks a parsed command line. Imports torch and DeepSpeed only when it is called."""
    from pipeline.engine.hardware import detect_hardware
    from pipeline.finetuning import finetune_settings

    return finetune_settings.make_tasks(flags, world_size, detect_hardware())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line, by default that of this process, and returns the exit status."""
    return run_command(parse, make_tasks, argv)


if __name__ == "__main__":
    run_and_exit(main)
