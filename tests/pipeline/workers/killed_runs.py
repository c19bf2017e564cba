"""The settings of the runs that tests kill, and waiting for the moment to kill one."""

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SAVE_INTERVAL = 5
CONFIG = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Lamb", "params": {"lr": 0.02}},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 100000},
}
FLAGS = [
    *["--model", "albert-tiny", "--log-interval", "4", "--eval-interval", "50", "--eval-batches", "2"],
    *["--save-interval", str(SAVE_INTERVAL), "--model-args", "num_hidden_layers=2", "hidden_size=32"],
    *["num_attention_heads=4", "intermediate_size=64", "embedding_size=16", "hidden_dropout_prob=0.1"],
]


def wait_until(condition: Any, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Returns as soon as `condition()` is true or a process has ended."""
    while not condition() and all(process.poll() is None for process in processes):
        time.sleep(0.001)


def flags(data: Path, eval_data: Path, precision: str, steps: int, folder: Path) -> list[str]:
    """The command line of the runs, without `--output`. Writes the DeepSpeed JSON into `folder`."""
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    where = ["--data", str(data), "--eval-data", str(eval_data), "--deepspeed_config", str(config)]
    return [*FLAGS, *where, "--precision", precision, "--steps", str(steps)]
