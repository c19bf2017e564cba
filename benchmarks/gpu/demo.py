"""The run of `make demo` on the GPU in fp16, and the same run on the processor: their losses must fall alike."""

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.place import Place
from benchmarks.shared.job import Job

STEPS = 3000
"""Steps of `make demo`: about two minutes on a GPU."""
REPOSITORY = Path(__file__).resolve().parents[2]


def train(place: Place, on_gpu: bool) -> dict[str, Any]:
    """Trains on the shards of `make demo`, or on made-up text without them. A second call goes on.

    Returns:
        The text, the seconds, and the losses by step.
    """
    demo = REPOSITORY / "demo" / "shards"
    is_there = (demo / "train" / "manifest.json").exists() and not place.tiny
    data, held_out = (demo / "train", demo / "held_out") if is_there else (place.shards(128), place.held_out(128))
    steps, interval = (8, 4) if place.tiny else (STEPS, 250)
    words = ["--model", "albert-tiny", "--data", str(data), "--eval-data", str(held_out)]
    words += ["--deepspeed_config", "ds_configs/demo.json", "--mask-probability", "0.3", "--steps", str(steps)]
    words += ["--log-interval", str(interval), "--eval-interval", str(2 * interval), "--eval-batches", "20"]
    words += ["--save-interval", str(2 * interval), "--precision", "fp16" if on_gpu and place.on_gpu else "fp32"]
    device = place.device.type if on_gpu else "cpu"
    ranks = 1 if on_gpu else 2
    job = Job(words, place.out / f"demo-{'gpu' if on_gpu else 'processor'}", ranks, device)
    job.finish()
    records = [json.loads(line) for line in (job.output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [record for record in records if record["split"] == "train"][-1]
    return {
        "text": "of make demo" if is_there else "made up",
        "seconds": last["seconds"],
        "training": {str(one["step"]): one["loss"] for one in records if one["split"] == "train"},
        "evaluation": {str(one["step"]): one["mlm_loss"] for one in records if one["split"] == "eval"},
    }
