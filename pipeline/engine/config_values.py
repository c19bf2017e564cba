"""Checks the values of a DeepSpeed JSON.

DeepSpeed has pydantic models for some blocks, and these check their values. `_RULES` checks the other values. DeepSpeed
would accept a wrong one, and fail hours later or not at all.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import UserError


class _Rule(NamedTuple):
    """What a value must be: in words, and as a test."""

    wanted: str
    holds: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    # A whole number may be too large for a float, and math.isfinite would raise.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_BOOLEAN = _Rule("true or false", lambda value: isinstance(value, bool))
_ABOVE_0 = _Rule("a number above 0", lambda value: _is_number(value) and value > 0)
_AT_LEAST_0 = _Rule("a number of at least 0", lambda value: _is_number(value) and value >= 0)
_STEPS = _Rule("a whole number of at least 0", lambda value: _is_whole(value) and value >= 0)
_BETAS = _Rule(
    "two numbers of at least 0 and below 1",
    lambda value: isinstance(value, list) and len(value) == 2 and all(_is_number(b) and 0 <= b < 1 for b in value),
)
_PRECISION = _Rule("fp16, bf16 or fp32", lambda value: value in ("fp16", "bf16", "fp32"))

_RULES = {
    "gradient_clipping": _AT_LEAST_0,
    "steps_per_print": _Rule(
        "a whole number of at least 1, or null", lambda value: value is None or (_is_whole(value) and value >= 1)
    ),
    "prescale_gradients": _BOOLEAN,
    "gradient_predivide_factor": _ABOVE_0,
    "communication_data_type": _PRECISION,
    "data_types.grad_accum_dtype": _PRECISION,
    "disable_allgather": _BOOLEAN,
    "dump_state": _BOOLEAN,
    "timers.throughput.enabled": _BOOLEAN,
    "timers.throughput.synchronized": _BOOLEAN,
    "wall_clock_breakdown": _BOOLEAN,
    "memory_breakdown": _BOOLEAN,
    "zero_allow_untested_optimizer": _BOOLEAN,
    "zero_force_ds_cpu_optimizer": _BOOLEAN,
    "fp16.enabled": _BOOLEAN,
    "bf16.enabled": _BOOLEAN,
    "optimizer.params.lr": _ABOVE_0,
    "optimizer.params.betas": _BETAS,
    "optimizer.params.eps": _ABOVE_0,
    "optimizer.params.weight_decay": _AT_LEAST_0,
    "optimizer.params.torch_adam": _BOOLEAN,
    "optimizer.params.adam_w_mode": _BOOLEAN,
    "optimizer.params.bias_correction": _BOOLEAN,
    "scheduler.params": _Rule("a JSON object, {...}", lambda value: isinstance(value, Mapping)),
    "scheduler.params.warmup_min_lr": _AT_LEAST_0,
    "scheduler.params.warmup_max_lr": _ABOVE_0,
    "scheduler.params.warmup_num_steps": _STEPS,
    "scheduler.params.total_num_steps": _STEPS,
    "scheduler.params.warmup_min_ratio": _AT_LEAST_0,
    "scheduler.params.cos_min_ratio": _AT_LEAST_0,
}

_MISSING = object()


def check(config: Mapping[str, Any], source: Path) -> None:
    """Raises UserError for an invalid value, with its path. `config_keys.check` must have passed."""
    for path, rule in _RULES.items():
        value = _at(config, path.split("."))
        if value is not _MISSING and not rule.holds(value):
            raise UserError(f"{source}: {path} is {value!r}; it must be {rule.wanted}")
    _check_by_deepspeed(config, source)


def _at(config: Any, path: list[str]) -> Any:
    for name in path:
        if not isinstance(config, Mapping) or name not in config:
            return _MISSING
        config = config[name]
    return config


def _check_by_deepspeed(config: Mapping[str, Any], source: Path) -> None:
    from deepspeed.comm.config import CommsLoggerConfig
    from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from pydantic import ValidationError

    models = {
        "zero_optimization": DeepSpeedZeroConfig,
        "fp16": DeepSpeedFP16Config,
        "bf16": DeepSpeedBF16Config,
        "tensorboard": TensorBoardConfig,
        "wandb": WandbConfig,
        "csv_monitor": CSVConfig,
        "comet": CometConfig,
        "comms_logger": CommsLoggerConfig,
    }
    for block, model in models.items():
        values = config.get(block, {})
        if not isinstance(values, Mapping):
            raise UserError(f"{source}: {block} is {values!r}; it must be a JSON object, {{...}}")
        try:
            model(**values)
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(map(str, (block, *first["loc"])))
            # The message may have several lines.
            message = first["msg"].splitlines()[0]
            raise UserError(f"{source}: {path} is {first['input']!r}: {message}; correct or remove it") from None
    if config.get("comet", {}).get("api_key") is not None:
        raise UserError(
            f"{source}: comet.api_key would be recorded in settings.json; remove it, and set COMET_API_KEY instead"
        )
