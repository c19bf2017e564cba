"""Checks the keys of a DeepSpeed JSON: an unknown key, at the top or in a block, is an error.

DeepSpeed itself ignores unknown keys outside of the blocks for which it has a model.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common.errors import UserError
from pipeline.engine import optimizers

_TOP_LEVEL = frozenset(
    {
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "optimizer",
        "scheduler",
        "fp16",
        "bf16",
        "zero_optimization",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
        "gradient_clipping",
        "communication_data_type",
        "data_types",
        "prescale_gradients",
        "gradient_predivide_factor",
        "disable_allgather",
        "activation_checkpointing",
        "aio",
        "checkpoint",
        "comms_logger",
        "csv_monitor",
        "tensorboard",
        "wandb",
        "comet",
        "flops_profiler",
        "timers",
        "wall_clock_breakdown",
        "memory_breakdown",
        "dump_state",
        "steps_per_print",
    }
)
# The keys of the blocks for which DeepSpeed has no model.
_BLOCKS = {
    "optimizer": frozenset({"type", "params"}),
    "scheduler": frozenset({"type", "params"}),
    "data_types": frozenset({"grad_accum_dtype"}),
    "timers": frozenset({"throughput"}),
    "checkpoint": frozenset({"tag_validation", "load_universal", "use_node_local_storage", "parallel_write", "writer"}),
    "aio": frozenset(
        {"block_size", "queue_depth", "intra_op_parallelism", "single_submit", "overlap_events", "use_gds"}
    ),
    "flops_profiler": frozenset(
        {"enabled", "recompute_fwd_factor", "profile_step", "module_depth", "top_modules", "detailed", "output_file"}
    ),
}


def check(config: dict[str, Any], source: Path) -> None:
    """Raises UserError for an unknown key, an unknown optimizer, or a missing learning rate or scheduler type."""
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    _reject_unknown(config, _TOP_LEVEL, source, "")
    for block, model in (
        ("zero_optimization", DeepSpeedZeroConfig),
        ("fp16", DeepSpeedFP16Config),
        ("bf16", DeepSpeedBF16Config),
    ):
        fields = model.model_fields
        known = set(fields) | {field.alias for field in fields.values() if field.alias}
        _reject_unknown(_block(config, block, source), known, source, f"{block}.")
    for block, names in _BLOCKS.items():
        _reject_unknown(_block(config, block, source), names, source, f"{block}.")
    throughput = _block(_block(config, "timers", source), "throughput", source)
    _reject_unknown(throughput, ("enabled", "synchronized"), source, "timers.throughput.")
    optimizer = _block(config, "optimizer", source)
    kind = optimizer.get("type")
    if not isinstance(kind, str) or kind not in optimizers.PARAMETERS:
        raise UserError(
            f"{source}: optimizer.type {kind!r} is not known; use one of {', '.join(optimizers.PARAMETERS)}"
            + _suggestion(str(kind), optimizers.PARAMETERS)
        )
    _reject_unknown(_block(optimizer, "params", source), optimizers.PARAMETERS[kind], source, "optimizer.params.")
    if "lr" not in optimizer.get("params", {}):
        raise UserError(f"{source}: optimizer.params.lr is missing; give the peak learning rate (paper: 0.00176)")
    if _block(config, "scheduler", source) and "type" not in config["scheduler"]:
        raise UserError(f"{source}: scheduler.type is missing; name one, or drop the block for the paper's schedule")


def _block(config: dict[str, Any], name: str, source: Path) -> dict[str, Any]:
    block = config.get(name, {})
    if not isinstance(block, dict):
        raise UserError(f"{source}: {name} is {block!r}; it must be a JSON object, {{...}}")
    return block


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _reject_unknown(block: dict[str, Any], known: Iterable[str], source: Path, prefix: str) -> None:
    for key in block:
        if key not in known:
            raise UserError(f"{source}: unknown key {prefix + key!r}{_suggestion(key, known)}; correct or remove it")
