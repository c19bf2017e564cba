"""Records of runs, as their settings.json holds them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from model import AlbertConfig
from pipeline.checkpoint.run_records import FinetuneRecord, PretrainRecord, RunRecord

COMMON: dict[str, Any] = {
    "seed": 0, "deterministic": False, "max_hours": None, "data": "of the data", "init": None, "init_weights": None,
    "init_model": None, "log_interval": 10, "eval_interval": 20, "save_interval": 20, "execution": {},
    "precision": "fp32", "world_size": 1, "device": "CPU", "deepspeed": {},
}  # fmt: skip
OPTIMIZATION: dict[str, Any] = {
    "train_batch_size": 8,
    "optimizer": {"type": "Lamb", "params": {"lr": 0.01}},
    "scheduler": None,
    "gradient_clipping": None,
}


def pretrain_record(**changes: Any) -> PretrainRecord:
    """The record of a pre-training run of 40 steps."""
    values: dict[str, Any] = {
        **COMMON, **OPTIMIZATION, "model": AlbertConfig.preset("albert-tiny").to_dict(), "objective": "sop",
        "masking": {}, "steps": 40, "warmup_steps": 1, "eval_batches": None, "distilled": None, "corpora": [],
        "skipped_batches": [], "data_directories": ["shards"], "eval_data_directories": [],
    }  # fmt: skip
    values |= changes
    return PretrainRecord(**values)


def finetune_record(**changes: Any) -> FinetuneRecord:
    """The record of a fine-tuning run of RTE."""
    values: dict[str, Any] = {
        **COMMON, "model": AlbertConfig.preset("albert-tiny").to_dict(), "init": "export", "init_weights": "of export",
        "init_model": AlbertConfig.preset("albert-tiny").to_dict(), "task": "rte", "own_task": None,
        "random_weights": False, "hyperparameters": {**OPTIMIZATION, "learning_rate": 0.01, "max_length": 64},
        "pretraining": None, "data_directory": "RTE", "data_on_hub": False,
    }  # fmt: skip
    return FinetuneRecord(**values | changes)


def write(run: Path, record: RunRecord) -> Path:
    """Writes settings.json into `run`."""
    run.mkdir(parents=True, exist_ok=True)
    path = run / "settings.json"
    path.write_text(json.dumps(dataclasses.asdict(record)), encoding="utf-8")
    return path
