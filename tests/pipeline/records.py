"""Settings of runs as their settings.json holds them."""

import dataclasses
from pathlib import Path
from typing import Any

from model import AlbertConfig, ExecutionOptions
from pipeline.data.masking import MaskingSettings
from pipeline.engine.engine_config import EngineConfig
from pipeline.settings.finetune_flags import FinetuneFlags
from pipeline.settings.pretrain_flags import PretrainFlags
from pipeline.settings.run_settings import FinetuneSettings, PretrainSettings, RunSettings
from pipeline.settings.settings_file import write_settings

ENGINE = EngineConfig(
    json={"optimizer": {"type": "Lamb", "params": {"lr": 0.01}}},
    precision="fp32",
    train_batch_size=8,
    micro_batch_size=8,
    accumulation_steps=1,
    world_size=1,
    device="CPU",
    optimizer="Lamb",
    learning_rate=0.01,
    notes=(),
)
PRETRAIN_FLAGS = PretrainFlags(output=Path("run"), shards=("shards",), deepspeed_config=Path("config.json"))
FINETUNE_FLAGS = FinetuneFlags(output=Path("run"), task_word="rte", init=Path("export"), data="RTE")
MODEL = AlbertConfig.preset("albert-tiny")


def _with(kind: Any, given: dict[str, Any], flags: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """The values of settings with changes: of fields, of the engine, or of the flags, each by its name."""
    others = [name for name in changes if name not in kind.__dataclass_fields__]
    engine = {name: changes.pop(name) for name in others if name in ENGINE.__dataclass_fields__}
    of_flags = {name: changes.pop(name) for name in others if name in changes}
    parts = {"engine": dataclasses.replace(ENGINE, **engine), "flags": dataclasses.replace(flags, **of_flags)}
    intervals = {"log_interval": 10, "eval_interval": 20, "save_interval": 20}
    return {"model": MODEL, "execution": ExecutionOptions(), **intervals, "steps": 40, **given, **parts, **changes}


def pretrain_settings(**changes: Any) -> PretrainSettings:
    """A pre-training run of 40 steps."""
    given: dict[str, Any] = {
        "warmup_steps": 1, "kept_checkpoints": 5, "objective": "sop", "masking": MaskingSettings(),
        "data": (Path("shards"),), "data_digests": ("of the data",), "corpus_weights": (1,), "corpora": (),
    }  # fmt: skip
    return PretrainSettings(**_with(PretrainSettings, given, PRETRAIN_FLAGS, changes))


def finetune_settings(**changes: Any) -> FinetuneSettings:
    """A fine-tuning run of RTE."""
    given: dict[str, Any] = {
        "warmup_steps": 1, "init": "export", "init_weights": "of export", "init_model": MODEL, "task": "rte",
        "data_digest": "of the data", "max_length": 64,
    }  # fmt: skip
    return FinetuneSettings(**_with(FinetuneSettings, given, FINETUNE_FLAGS, changes))


def write(run: Path, settings: RunSettings) -> Path:
    """Writes settings.json into `run`."""
    run.mkdir(parents=True, exist_ok=True)
    write_settings(run, settings)
    return run / "settings.json"
