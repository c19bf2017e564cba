"""Pre-trains ALBERT with DeepSpeed. The same command again resumes the run.

One machine, all of its GPUs, or its CPU if it has none:

    deepspeed --module pipeline.pretrain --model albert-base --data shards/train --eval-data shards/held_out \\
        --deepspeed_config ds_configs/base.json --output runs/base

Two ranks on a laptop's CPU:

    deepspeed --num_accelerators 2 --module pipeline.pretrain --model albert-tiny --data shards/train \\
        --deepspeed_config ds_configs/tiny.json --output runs/tiny --steps 1000

Several machines, over ssh (pdsh):

    deepspeed --hostfile hostfile --module pipeline.pretrain --model albert-xxlarge --data shards/train \\
        --eval-data shards/held_out --deepspeed_config ds_configs/xxlarge-80gb.json --output runs/xxlarge

Six to eight machines that may come and go, without ssh (docs/cluster.md):

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nnodes 6:8 --nproc-per-node 8 --max-restarts 100 --rdzv-backend c10d --rdzv-endpoint node1:29400 \\
        -m pipeline.pretrain --model albert-xxlarge --data shards/train \\
        --deepspeed_config ds_configs/xxlarge-80gb.json --output runs/xxlarge

Three samples of Wikipedia for each sample of books, evaluated separately:

    deepspeed --module pipeline.pretrain --model albert-base --data shards/wikipedia:3 shards/books:1 \\
        --eval-data held_out/wikipedia held_out/books --deepspeed_config ds_configs/base.json --output runs/mixed

Exit status of a rank: 0 done, or nothing left to do; 1 failed; 2 a mistake in the command; 69 another rank or host was
lost, or a rank holds wrong weights; 75 stopped by SIGTERM, SIGUSR1 or Ctrl-C after a save. After 69 and 75, start the
command again. The launcher's own exit status: docs/cluster.md.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.distributed.exits import run_and_exit
from pipeline.run.launch import run_command
from pipeline.settings.pretrain_flags import PretrainFlags, parse

if TYPE_CHECKING:
    from pipeline.pretraining.pretraining_task import PreTraining


def make_tasks(flags: PretrainFlags, world_size: int) -> "list[PreTraining]":
    """Checks a parsed command line. Imports torch and DeepSpeed only when it is called."""
    from pipeline.engine.hardware import detect_hardware
    from pipeline.pretraining.pretrain_settings import make_task

    return [make_task(flags, world_size, detect_hardware())]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line, by default that of this process, and returns the exit status."""
    return run_command(parse, make_tasks, argv)


if __name__ == "__main__":
    run_and_exit(main)
