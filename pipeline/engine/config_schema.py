"""Checks the keys and values of a DeepSpeed JSON by one typed model.

DeepSpeed itself ignores unknown keys outside of the blocks for which it has a model. It would accept a wrong value
elsewhere, and fail hours later or not at all.
"""

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, StrictBool, ValidationError

from common.errors import UserError
from pipeline.engine import optimizers
from pipeline.engine.optimizers import AboveZero, AtLeastZero, Strict

_Precision = Literal["fp16", "bf16", "fp32"]


class _Optimizer(Strict):
    """`optimizers.PARAMETERS` has the models of `params`."""

    type: Any = None
    params: dict[str, Any] = Field(default_factory=dict)


class _SchedulerParameters(Strict):
    """Each scheduler has others as well."""

    model_config = ConfigDict(extra="allow")
    warmup_min_lr: AtLeastZero = 0.0
    warmup_max_lr: AboveZero = 1.0
    warmup_num_steps: NonNegativeInt = 0
    total_num_steps: NonNegativeInt = 0
    warmup_min_ratio: AtLeastZero = 0.0
    cos_min_ratio: AtLeastZero = 0.0


class _Scheduler(Strict):
    type: str
    params: _SchedulerParameters = _SchedulerParameters()


class _DataTypes(Strict):
    grad_accum_dtype: _Precision = "fp32"


class _Throughput(Strict):
    enabled: bool = True
    synchronized: bool = True


class _Timers(Strict):
    throughput: _Throughput = _Throughput()


@cache
def _top_level() -> type[BaseModel]:
    """The model of the whole JSON. The blocks that DeepSpeed has models for have these."""
    from deepspeed.comm.config import CommsLoggerConfig
    from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    class Fp16(DeepSpeedFP16Config):
        enabled: StrictBool = False

    class Bf16(DeepSpeedBF16Config):
        enabled: StrictBool = False

    class TopLevel(Strict):
        train_batch_size: Any = None  # `config.batch_sizes` checks the three sizes
        train_micro_batch_size_per_gpu: Any = None
        gradient_accumulation_steps: Any = None
        optimizer: _Optimizer = _Optimizer()
        scheduler: _Scheduler = _Scheduler(type="WarmupLR")
        fp16: Fp16 = Fp16()
        bf16: Bf16 = Bf16()
        zero_optimization: DeepSpeedZeroConfig = DeepSpeedZeroConfig()
        zero_allow_untested_optimizer: bool = True
        zero_force_ds_cpu_optimizer: bool = True
        gradient_clipping: AtLeastZero = 0.0
        communication_data_type: _Precision = "fp32"
        data_types: _DataTypes = _DataTypes()
        prescale_gradients: bool = False
        gradient_predivide_factor: AboveZero = 1.0
        disable_allgather: bool = False
        activation_checkpointing: Any = None
        aio: dict[str, Any] = Field(default_factory=dict)
        checkpoint: dict[str, Any] = Field(default_factory=dict)
        comms_logger: CommsLoggerConfig = CommsLoggerConfig()
        csv_monitor: CSVConfig = CSVConfig()
        tensorboard: TensorBoardConfig = TensorBoardConfig()
        wandb: WandbConfig = WandbConfig()
        comet: CometConfig = CometConfig()
        flops_profiler: dict[str, Any] = Field(default_factory=dict)
        timers: _Timers = _Timers()
        wall_clock_breakdown: bool = False
        memory_breakdown: bool = False
        dump_state: bool = False
        steps_per_print: PositiveInt | None = None

    return TopLevel


def check(config: Mapping[str, Any], source: Path) -> None:
    """Raises UserError for an unknown key, an invalid value, an unknown optimizer or a missing learning rate."""
    _validate(_top_level(), config, source)
    optimizer = config.get("optimizer", {})
    kind = optimizer.get("type")
    if not isinstance(kind, str) or kind not in optimizers.PARAMETERS:
        raise UserError(
            f"{source}: optimizer.type {kind!r} is not known; use one of {', '.join(optimizers.PARAMETERS)}"
            + _suggestion(str(kind), optimizers.PARAMETERS)
        )
    _validate(optimizers.PARAMETERS[kind], optimizer.get("params", {}), source, "optimizer.params.")
    if config.get("comet", {}).get("api_key") is not None:
        raise UserError(
            f"{source}: comet.api_key would be recorded in settings.json; remove it, and set COMET_API_KEY instead"
        )


def _validate(model: type[BaseModel], values: Mapping[str, Any], source: Path, prefix: str = "") -> None:
    try:
        model.model_validate(dict(values))
    except ValidationError as error:
        # A mistyped key first: it may be the one that is missing.
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    else:
        return
    location = first["loc"]
    path, wrong = prefix + ".".join(map(str, location)), first["input"]
    if first["type"] == "extra_forbidden":
        near = _suggestion(str(location[-1]), _keys_at(model, location[:-1]))
        raise UserError(f"{source}: unknown key {path!r}{near}; correct or remove it")
    if first["type"] == "missing":
        hint = "; give the peak learning rate (paper: 0.00176)" if path == "optimizer.params.lr" else "; add it"
        raise UserError(f"{source}: {path} is missing{hint}")
    message = first["msg"].splitlines()[0]  # it may have several
    if first["type"] in ("model_type", "dict_type"):
        message = "it must be a JSON object, {...}"
    raise UserError(f"{source}: {path} is {wrong!r:.60}: {message}; correct or remove it")


def _keys_at(model: Any, location: tuple[int | str, ...]) -> list[str]:
    """The keys of the block at this place of a model."""
    for name in location:
        model = model.model_fields[name].annotation if name in getattr(model, "model_fields", {}) else None
    fields = getattr(model, "model_fields", {})
    return [*fields, *(field.alias for field in fields.values() if field.alias)]


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
