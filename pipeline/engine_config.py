"""The DeepSpeed JSON: read, checked key by key, and fitted to the machines at hand.

What DeepSpeed itself accepts is handed to it as it is. Only two things are ever changed, and both are said aloud:
the number of accumulation steps that the world size leaves open, and the precision where the hardware lacks it.
"""

import copy
import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data_prep.errors import UserError
from pipeline import config_values

Precision = Literal["fp16", "bf16", "fp32"]

OPTIMIZERS = ("Lamb", "Adam", "AdamW")

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
        "flops_profiler",
        "wall_clock_breakdown",
        "memory_breakdown",
        "dump_state",
        "steps_per_print",
    }
)
# Of the blocks that DeepSpeed has no model for: without one it passes over what it does not know.
_BLOCKS = {
    "optimizer": frozenset({"type", "params"}),
    "scheduler": frozenset({"type", "params"}),
    "data_types": frozenset({"grad_accum_dtype"}),
    "checkpoint": frozenset({"tag_validation", "load_universal", "use_node_local_storage", "parallel_write", "writer"}),
    "aio": frozenset(
        {"block_size", "queue_depth", "intra_op_parallelism", "single_submit", "overlap_events", "use_gds"}
    ),
    "flops_profiler": frozenset(
        {"enabled", "recompute_fwd_factor", "profile_step", "module_depth", "top_modules", "detailed", "output_file"}
    ),
}
_OPTIMIZER_PARAMS = {
    "Lamb": frozenset({"lr", "betas", "eps", "weight_decay"}),
    "Adam": frozenset({"lr", "betas", "eps", "weight_decay", "torch_adam", "adam_w_mode", "bias_correction"}),
    "AdamW": frozenset({"lr", "betas", "eps", "weight_decay", "torch_adam", "adam_w_mode", "bias_correction"}),
}


@dataclass(frozen=True)
class Hardware:
    """What the machine computes in.

    Attributes:
        name: as a person would call it, "NVIDIA H200" or "CPU".
        fp16: fp16 matrix products are native.
        bf16: bf16 matrix products are native.
    """

    name: str
    fp16: bool
    bf16: bool


@dataclass(frozen=True)
class EngineConfig:
    """A checked DeepSpeed JSON for a known number of ranks.

    Attributes:
        json: what `deepspeed.initialize` gets.
        train_batch_size: rows in a step, over all ranks.
        micro_batch_size: rows in a micro-step of one rank.
        accumulation_steps: micro-steps in a step.
        learning_rate: the peak, of the optimizer block.
        notes: what was changed and why, each for one line on the screen.
    """

    json: dict[str, Any]
    precision: Precision
    train_batch_size: int
    micro_batch_size: int
    accumulation_steps: int
    world_size: int
    optimizer: str
    learning_rate: float
    notes: tuple[str, ...]

    @property
    def optimizer_params(self) -> dict[str, Any]:
        return dict(self.json["optimizer"].get("params", {}))

    @property
    def is_adamw_of_the_paper(self) -> bool:
        """Whether the optimizer is AdamW with its bias correction turned off."""
        return self.optimizer == "AdamW" and self.optimizer_params.get("bias_correction") is False

    @property
    def zero_stage(self) -> int:
        return int(self.json.get("zero_optimization", {}).get("stage", 0))


def load(path: Path) -> dict[str, Any]:
    """Reads the JSON file.

    Raises:
        UserError: no such file, broken JSON (with its line), a key given twice, an unknown key, or a value that
            cannot be meant.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise UserError(f"{path}: key {key!r} is given twice; keep one")
        return dict(pairs)

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"--deepspeed_config {path}: {error.strerror}; name a file such as ds_configs/base.json"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; name a JSON file such as ds_configs/base.json") from None
    try:
        config = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno}: {error.msg}; mend the JSON there") from None
    if not isinstance(config, dict):
        raise UserError(f"{path}: a JSON object is wanted, {{...}}")
    check_keys(config, path)
    config_values.check(config, path)
    return config


def check_keys(config: dict[str, Any], source: Path) -> None:
    """Raises UserError for a key, at the top or in a block, that is not known: a misspelt key is a lost GPU-week."""
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    _refuse_unknown(config, _TOP_LEVEL, source, "")
    for block, model in (
        ("zero_optimization", DeepSpeedZeroConfig),
        ("fp16", DeepSpeedFP16Config),
        ("bf16", DeepSpeedBF16Config),
    ):
        fields = model.model_fields
        known = set(fields) | {field.alias for field in fields.values() if field.alias}
        _refuse_unknown(_block(config, block, source), known, source, f"{block}.")
    for block, names in _BLOCKS.items():
        _refuse_unknown(_block(config, block, source), names, source, f"{block}.")
    optimizer = _block(config, "optimizer", source)
    kind = optimizer.get("type")
    if kind not in OPTIMIZERS:
        raise UserError(
            f"{source}: optimizer.type {kind!r} is not known; use one of {', '.join(OPTIMIZERS)}"
            + _suggestion(str(kind), OPTIMIZERS)
        )
    _refuse_unknown(_block(optimizer, "params", source), _OPTIMIZER_PARAMS[kind], source, "optimizer.params.")
    if "lr" not in optimizer.get("params", {}):
        raise UserError(f"{source}: optimizer.params.lr is missing; give the peak learning rate (paper: 0.00176)")
    if _block(config, "scheduler", source) and "type" not in config["scheduler"]:
        raise UserError(f"{source}: scheduler.type is missing; name one, or drop the block for the paper's schedule")


def fit(config: dict[str, Any], world_size: int, hardware: Hardware, precision: str = "auto") -> EngineConfig:
    """Fits a checked JSON to `world_size` ranks of `hardware`.

    Args:
        precision: auto (the JSON's, or the nearest that the hardware has), config (the JSON's or an error), or
            fp16, bf16, fp32, which override the JSON.
    Raises:
        UserError: sizes that do not divide, or a precision that the hardware lacks.
    """
    config = copy.deepcopy(config)
    batch, micro, accumulation = batch_sizes(config, world_size)
    config |= {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
    }
    chosen, note = choose_precision(config, hardware, precision)
    for kind in ("fp16", "bf16"):
        if kind == chosen:
            config[kind] = {**config.get(kind, {}), "enabled": True}
        else:
            config.pop(kind, None)
    # The optimizer is ours, which DeepSpeed cannot have tested; saying so is all that the key does.
    config.setdefault("zero_allow_untested_optimizer", True)
    config.setdefault("steps_per_print", 2**31)  # the trainer prints; DeepSpeed's own line would repeat it
    return EngineConfig(
        json=config,
        precision=chosen,
        train_batch_size=batch,
        micro_batch_size=micro,
        accumulation_steps=accumulation,
        world_size=world_size,
        optimizer=config["optimizer"]["type"],
        learning_rate=float(config["optimizer"]["params"]["lr"]),
        notes=(note,) if note else (),
    )


def batch_sizes(config: dict[str, Any], world_size: int) -> tuple[int, int, int]:
    """(train batch, micro-batch, accumulation steps): batch = micro * accumulation * ranks, the open one derived.

    Raises:
        UserError: with fewer than two of the three given, or where they contradict the number of ranks.
    """
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    for name in names:
        value = config.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UserError(f"{name} is {value!r}; a whole number of at least 1 is wanted")
    batch, micro, accumulation = (config.get(name) for name in names)
    ranks = f"{world_size} rank{'s' if world_size > 1 else ''}"
    if batch is None:
        if micro is None:
            raise UserError(f"give {names[0]} or {names[1]} in the DeepSpeed JSON: neither is there")
        accumulation = accumulation or 1
        return micro * accumulation * world_size, micro, accumulation
    if micro is None:
        accumulation = accumulation or 1
        micro, rest = divmod(batch, accumulation * world_size)
        if rest or micro == 0:
            raise UserError(
                f"train_batch_size {batch} is not a multiple of {accumulation} accumulation steps x {ranks}; "
                "change one of them"
            )
        return batch, micro, accumulation
    derived, rest = divmod(batch, micro * world_size)
    if rest or derived == 0:
        nearest = max(1, round(batch / (micro * world_size))) * micro * world_size
        raise UserError(
            f"train_batch_size {batch} is not a multiple of micro-batch {micro} x {ranks} = {micro * world_size}; "
            f"use a batch of {nearest}, another train_micro_batch_size_per_gpu, or another number of ranks"
        )
    if accumulation not in (None, derived):
        raise UserError(
            f"gradient_accumulation_steps {accumulation} contradicts train_batch_size {batch} with micro-batch {micro} "
            f"on {ranks}, which needs {derived}; remove the key to have it derived"
        )
    return batch, micro, derived


def choose_precision(config: dict[str, Any], hardware: Hardware, choice: str = "auto") -> tuple[Precision, str | None]:
    """The precision to train in, and what to tell the user where it is not the one that the JSON asks for."""
    enabled: list[Precision] = [kind for kind in ("fp16", "bf16") if config.get(kind, {}).get("enabled", False)]
    if len(enabled) == 2:
        raise UserError("fp16 and bf16 are both enabled in the DeepSpeed JSON; enable one")
    wanted: Precision = enabled[0] if enabled else "fp32"
    native: dict[str, bool] = {"fp16": hardware.fp16, "bf16": hardware.bf16, "fp32": True}
    if choice in ("config", "auto"):
        if native[wanted]:
            return wanted, None
        if choice == "config":
            raise UserError(
                f"the DeepSpeed JSON asks for {wanted}, which {hardware.name} does not have; use --precision auto"
            )
        fallback: Precision = "bf16" if native["bf16"] else "fp32"
        return fallback, f"{hardware.name} has no native {wanted}: training in {fallback} instead"
    if choice == "fp16" and not native["fp16"]:
        raise UserError(f"--precision fp16: {hardware.name} does not have it; use --precision auto")
    explicit: Precision = choice  # type: ignore[assignment]
    return (
        explicit,
        None if explicit == wanted else f"training in {explicit}, not in {wanted} as the JSON says",
    )


def detect_hardware() -> Hardware:
    """What this rank's accelerator, as DeepSpeed sees it, computes in natively."""
    import torch
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    if accelerator.device_name() == "cpu":
        # DeepSpeed's CPU accelerator always claims bf16; without instructions for it torch is many times slower.
        return Hardware("CPU", bool(accelerator.is_fp16_supported()), torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return Hardware(
        torch.cuda.get_device_name() if torch.cuda.is_available() else accelerator.device_name(),
        bool(accelerator.is_fp16_supported()),
        bool(accelerator.is_bf16_supported()),
    )


def _block(config: dict[str, Any], name: str, source: Path) -> dict[str, Any]:
    block = config.get(name, {})
    if not isinstance(block, dict):
        raise UserError(f"{source}: {name} is {block!r}; a JSON object is wanted, {{...}}")
    return block


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _refuse_unknown(block: dict[str, Any], known: Iterable[str], source: Path, prefix: str) -> None:
    for key in block:
        if key not in known:
            raise UserError(f"{source}: unknown key {prefix + key!r}{_suggestion(key, known)}; mend or remove it")
