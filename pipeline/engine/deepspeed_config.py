"""Reads the DeepSpeed JSON, checks its keys and values, and fits it to the number of ranks and their hardware.

DeepSpeed itself ignores unknown keys outside of the blocks for which it has a model. It would accept a wrong value
elsewhere, and fail hours later or not at all. So the models here have each key that this project supports.

DeepSpeed gets the checked values with two exceptions: `batch_sizes` fits the batch sizes to the number of ranks, and a
precision that the hardware lacks is replaced. `EngineConfig.notes` says what differs.
"""

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from common.errors import UserError
from common.files.json_files import parse_object, read_bytes
from common.text import did_you_mean, quantity
from pipeline.engine import optimizers
from pipeline.engine.engine_config import EngineConfig, Precision
from pipeline.engine.hardware import Hardware
from pipeline.engine.optimizers import AboveZero, AtLeastZero, Strict

SHIPPED = Path(__file__).resolve().parents[2] / "ds_configs"  # the presets, which are installed with the packages
REMEDY = "name a file such as ds_configs/base.json"
MAX_CONFIG_BYTES = 4 << 20
MAX_BATCH = 1 << 24  # rows. Larger numbers are mistakes.


def load(path: Path) -> dict[str, Any]:
    """Reads the JSON file. `ds_configs/NAME.json` is the preset of that name, whatever the current directory is.

    Raises UserError: the file is missing, is not JSON (with the line), or has a duplicate key, an unknown key or an
    invalid value.
    """
    # `os.path.exists` is False for a name that is too long, where `Path.exists` raises.
    is_preset = not os.path.exists(path) and path.parent == Path("ds_configs") and os.path.exists(SHIPPED / path.name)
    try:
        content = read_bytes(SHIPPED / path.name if is_preset else path, REMEDY, MAX_CONFIG_BYTES)
    except UserError as error:
        raise UserError(f"--deepspeed_config {error}") from None
    return _check_schema(parse_object(content, path, "correct the JSON", allow_nan=True), path)


_Size = Annotated[int, Field(ge=1, le=MAX_BATCH)]
Elements = Annotated[int, Field(ge=0, strict=False)]  # a number of elements, also in the form 5e8


class _Optimizer(Strict):
    """`optimizers.parameters_of` has the models of `params`."""

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
    warmup_type: Literal["linear", "log"] = "log"
    cos_min_ratio: AtLeastZero = 0.0
    decay_num_steps: NonNegativeInt = 0
    decay_type: Literal["linear", "1-sqrt"] = "linear"


class _Scheduler(Strict):
    type: str
    params: _SchedulerParameters = _SchedulerParameters()


class _DataTypes(Strict):
    grad_accum_dtype: Precision = "fp32"


Switch = Literal[True, False, "auto"]  # whether a precision is enabled; `choose_precision` decides what is "auto"


class _Fp16(Strict):
    enabled: Switch = False
    loss_scale: AtLeastZero = 0.0
    initial_scale_power: NonNegativeInt = 16
    loss_scale_window: PositiveInt = 1000
    hysteresis: NonNegativeInt = 2
    consecutive_hysteresis: bool = False
    min_loss_scale: AtLeastZero = 1.0


class _Bf16(Strict):
    enabled: Switch = False


class _Zero(Strict):
    """The keys under which gradients, trust ratios and a resume are right.

    Left out are those that move or hide the optimizer's buffers (round_robin_gradients, zenflow, quantised weights and
    gradients, second copies of weights), and offloading: the largest ALBERT takes 4 GB.
    """

    stage: Literal[0, 1, 2, 3] = 0
    contiguous_gradients: bool = True
    overlap_comm: bool = False
    reduce_scatter: bool = True
    reduce_bucket_size: Elements = 500_000_000
    allgather_partitions: bool = True
    allgather_bucket_size: Elements = 500_000_000
    sub_group_size: Elements = 1_000_000_000
    stage3_prefetch_bucket_size: Elements = 50_000_000
    stage3_param_persistence_threshold: Elements = 100_000
    stage3_max_live_parameters: Elements = 1_000_000_000
    stage3_max_reuse_distance: Elements = 1_000_000_000
    stage3_gather_16bit_weights_on_model_save: bool = False


class _FlopsProfiler(Strict):
    enabled: bool = False
    recompute_fwd_factor: AtLeastZero = 0.0
    profile_step: PositiveInt = 1
    module_depth: int = -1
    top_modules: PositiveInt = 1
    detailed: bool = True
    output_file: str | None = None


class _TopLevel(Strict):
    train_batch_size: _Size | None = None
    train_micro_batch_size_per_gpu: _Size | None = None
    gradient_accumulation_steps: _Size | None = None
    optimizer: _Optimizer = _Optimizer()
    scheduler: _Scheduler = _Scheduler(type="WarmupLR")
    fp16: _Fp16 = _Fp16()
    bf16: _Bf16 = _Bf16()
    zero_optimization: _Zero = _Zero()
    zero_allow_untested_optimizer: bool = True
    gradient_clipping: AtLeastZero = 0.0
    communication_data_type: Precision = "fp32"
    data_types: _DataTypes = _DataTypes()
    prescale_gradients: bool = False
    gradient_predivide_factor: AboveZero = 1.0
    flops_profiler: _FlopsProfiler = _FlopsProfiler()
    timers: dict[Literal["throughput"], dict[Literal["enabled", "synchronized"], bool]] = Field(default_factory=dict)
    wall_clock_breakdown: bool = False
    memory_breakdown: bool = False
    dump_state: bool = False
    steps_per_print: PositiveInt | None = None


def _check_schema(config: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The values of the given keys as they were checked. Raises UserError for an unknown key and an invalid value."""
    checked = _validate(_TopLevel, config, source)
    optimizer = checked.get("optimizer", {})
    kind = optimizer.get("type")
    if kind not in optimizers.TYPES:
        raise UserError(f"{source}: optimizer.type {kind!r} is not known; use one of {', '.join(optimizers.TYPES)}")
    params = _validate(optimizers.parameters_of(optimizer), optimizer.get("params", {}), source, "optimizer.params.")
    return checked | {"optimizer": optimizer | {"params": params}}


def _validate(model: type[BaseModel], values: Mapping[str, Any], source: Path, prefix: str = "") -> dict[str, Any]:
    try:
        return model.model_validate(dict(values)).model_dump(exclude_unset=True)
    except ValidationError as error:
        # A mistyped key first: it may be the one that is missing.
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    path = prefix + ".".join(map(str, first["loc"])).removesuffix(".[key]")
    if first["type"] == "extra_forbidden":
        block: Any = model
        for name in first["loc"][:-1]:
            block = block.model_fields[name].annotation
        keys = block.model_fields
        raise UserError(f"{source}: unknown key {path!r}; {did_you_mean(path.split('.')[-1], keys, 'remove it')}")
    if first["type"] == "missing":
        raise UserError(f"{source}: {path} is missing; add it{' (paper: 0.00176)' if path.endswith('.lr') else ''}")
    message = first["msg"].splitlines()[0]  # it may have several
    if first["type"] in ("model_type", "dict_type"):
        message = "it must be a JSON object, {...}"
    raise UserError(f"{source}: {path} is {first['input']!r:.60}: {message}; correct or remove it")


def fit(config: dict[str, Any], world_size: int, hardware: Hardware, precision: str = "auto") -> EngineConfig:
    """Fits a checked JSON to `world_size` ranks of `hardware`.

    precision: "auto" (the JSON's, or the nearest that the hardware has), "config" (the JSON's, or an error), or "fp16",
    "bf16" or "fp32", which override the JSON. Raises UserError: the batch sizes contradict each other, the hardware
    lacks the precision, or ZeRO stage 0 cannot train in it.
    """
    config = copy.deepcopy(config)
    batch, micro, accumulation = batch_sizes(config, world_size)
    asked = config.get("gradient_accumulation_steps")
    derived = (
        f"gradient_accumulation_steps is {accumulation}, not {asked} as the JSON says, to train {batch} rows on "
        f"{quantity(world_size, 'rank')}"
    )
    config |= {
        "train_batch_size": micro * accumulation * world_size,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
    }
    chosen, note = choose_precision(config, hardware, precision)
    accumulated_in = config.get("data_types", {}).get("grad_accum_dtype", chosen)
    if not config.get("zero_optimization", {}).get("stage") and (chosen == "fp16" or accumulated_in != chosen):
        problem = f"accumulates gradients in {chosen} only; remove data_types.grad_accum_dtype, or set"
        if chosen == "fp16":
            problem = "divides gradients by a loss scale that never multiplied the loss; set"
        raise UserError(f'{chosen} at ZeRO stage 0 {problem} "zero_optimization": {{"stage": 1}}, also on one GPU')
    for kind in ("fp16", "bf16"):
        if kind == chosen:
            config[kind] = {**config.get(kind, {}), "enabled": True}
        else:
            config.pop(kind, None)
    # DeepSpeed has not tested the project's optimizer. The key accepts that and has no other effect.
    config["zero_allow_untested_optimizer"] = True
    config.setdefault("steps_per_print", 2**31)  # never: the trainer prints these numbers
    return EngineConfig(
        json=config,
        precision=chosen,
        train_batch_size=batch,
        micro_batch_size=micro,
        accumulation_steps=accumulation,
        world_size=world_size,
        device=hardware.name,
        optimizer=config["optimizer"]["type"],
        learning_rate=_peak_rate(config),
        notes=tuple(filter(None, (note, derived if asked not in (None, accumulation) else None))),
    )


def _peak_rate(config: Mapping[str, Any]) -> float:
    """The peak of the learning rate: the scheduler's `warmup_max_lr`, or without one the optimizer's `lr`."""
    of_schedule = config.get("scheduler", {}).get("params", {})
    return float(of_schedule.get("warmup_max_lr", config["optimizer"]["params"]["lr"]))


def batch_sizes(config: dict[str, Any], world_size: int) -> tuple[int, int, int]:
    """(train batch, micro-batch, accumulation steps) for `world_size` ranks.

    batch <= micro-batch * accumulation steps * ranks. What the product exceeds the batch by are empty rows. A batch can
    be trained on any number of ranks: the JSON's micro-batch is an upper bound, which decides the accumulation steps,
    and the micro-batch is as small as these allow. So mostly few rows are empty.

    The other sizes that the JSON leaves out are derived; the accumulation steps are 1 if nothing determines them.
    Raises UserError: the JSON gives no batch, or its sizes fit no number of ranks.
    """
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    batch, micro, accumulation = (config.get(name) for name in names)
    if batch is None:
        raise UserError(f"the DeepSpeed JSON has no {names[0]}, which is the same on any ranks; add it (paper: 4096)")
    if micro and accumulation and batch % (micro * accumulation):
        raise UserError(
            f"gradient_accumulation_steps {accumulation} contradicts train_batch_size {batch} with micro-batch {micro} "
            "on any number of ranks; remove the key to have it derived"
        )
    rows = -(-batch // world_size)  # of the rank that has most
    steps = min(accumulation or 1, rows) if micro is None else -(-rows // micro)
    micro = -(-rows // steps)
    return batch, micro, -(-rows // micro)


def choose_precision(config: dict[str, Any], hardware: Hardware, choice: str = "auto") -> tuple[Precision, str | None]:
    """The precision to train in, and a note for the user if it differs from the JSON's; None if it does not.

    choice: as the `precision` of `fit`. Raises UserError: the JSON enables two precisions, or the hardware lacks it.
    """
    native: dict[Precision, bool] = {"bf16": hardware.bf16, "fp16": hardware.fp16, "fp32": True}
    values = {kind: config.get(kind, {}).get("enabled") for kind in ("fp16", "bf16")}
    enabled: list[Precision] = [kind for kind in ("fp16", "bf16") if values[kind] is True]
    if len(enabled) == 2:
        raise UserError("fp16 and bf16 are both enabled in the DeepSpeed JSON; enable one")
    if not enabled and "auto" in values.values():
        # The first that the hardware has and the JSON does not switch off.
        enabled = [kind for kind in native if native[kind] and values.get(kind) is not False][:1]
    wanted: Precision = enabled[0] if enabled else "fp32"
    if choice in ("config", "auto"):
        if native[wanted]:
            return wanted, None
        if choice == "config":
            raise UserError(f"the DeepSpeed JSON asks for {wanted}, which {hardware.name} lacks; use --precision auto")
        fallback: Precision = "bf16" if native["bf16"] else "fp32"
        return fallback, f"{hardware.name} has no native {wanted}: training in {fallback} instead"
    if choice == "fp16" and not native["fp16"]:
        raise UserError(f"--precision fp16: {hardware.name} does not have it; use --precision auto")
    explicit: Precision = choice  # type: ignore[assignment]
    return explicit, None if explicit == wanted else f"training in {explicit}, not in {wanted} as the JSON says"
