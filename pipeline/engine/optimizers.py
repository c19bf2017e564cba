"""The optimizers that a DeepSpeed JSON can name: the project's, torch's and DeepSpeed's.

Lamb                                the project's own
AdamW without bias correction       the same class with every trust ratio 1, as in the paper's code
Adam, AdamW                         torch's, fused into one kernel on a GPU
Adam, AdamW, "torch_adam": false    DeepSpeed's FusedAdam, which it compiles at the first start
... with an offloaded state         DeepSpeed's CPUAdam, likewise, unless "torch_adam" is true
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from common.errors import UserError
from pipeline.engine.lamb import Lamb

_COMMON = frozenset({"lr", "betas", "eps", "weight_decay"})
_ADAM = _COMMON | {"torch_adam", "adam_w_mode", "bias_correction"}

PARAMETERS: dict[str, frozenset[str]] = {"Lamb": _COMMON, "Adam": _ADAM, "AdamW": _ADAM}
"""By `optimizer.type`, the keys that `optimizer.params` may have."""

OWN: dict[str, Callable[..., torch.optim.Optimizer]] = {"Lamb": Lamb}
"""By `optimizer.type`, the class of each optimizer of the project. Its arguments: parameter groups, and `params`."""


def is_own(block: Mapping[str, Any]) -> bool:
    """Whether the project makes the optimizer of an `optimizer` block."""
    return block["type"] in OWN or _is_adamw_of_the_paper(block)


def _is_adamw_of_the_paper(block: Mapping[str, Any]) -> bool:
    """Whether it is AdamW without bias correction, as in the paper's code. This is `Lamb` with every trust ratio 1."""
    return block["type"] == "AdamW" and block.get("params", {}).get("bias_correction") is False


def check(block: Mapping[str, Any]) -> None:
    """Raises UserError for parameters that the optimizer of an `optimizer` block does not have."""
    params = block.get("params", {})
    if block["type"] == "Adam" and params.get("torch_adam") and params.get("bias_correction") is False:
        raise UserError('torch\'s Adam always corrects the bias; remove "torch_adam" or "bias_correction"')
    if not _is_adamw_of_the_paper(block):
        return
    for name in block["params"]:
        if name not in _COMMON | {"bias_correction"}:
            raise UserError(
                f"optimizer.params.{name} belongs to DeepSpeed's AdamW, and with bias_correction false the project's "
                "own is used; remove one of them"
            )


def make_own(block: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer | None:
    """Makes the optimizer of an `optimizer` block; None if it is not the project's own.

    Args:
        block: the type, and the parameters without the weight decay, which `groups` have.
        groups: see `pipeline.engine.parameter_groups.parameter_groups`.
    """
    if not is_own(block):
        return None
    params = {name: value for name, value in block.get("params", {}).items() if name != "weight_decay"}
    if _is_adamw_of_the_paper(block):
        del params["bias_correction"]
        return Lamb([group | {"trust_ratio": False} for group in groups], **params)
    return OWN[block["type"]](groups, **params)


def is_torch_s(config: Mapping[str, Any]) -> bool:
    """Whether torch makes the optimizer of a DeepSpeed JSON, whose `optimizer` block `check` has accepted.

    DeepSpeed makes it if the JSON asks for that: by "torch_adam", by Adam without bias correction, or by offloading.
    """
    block = config["optimizer"]
    if is_own(block):
        return False
    params = block.get("params", {})
    corrected = params.get("bias_correction") is not False
    return bool(params.get("torch_adam", corrected and not _offloads(config)))


def _offloads(config: Mapping[str, Any]) -> bool:
    """Whether the optimizer's state is in the host's memory."""
    offload = (config.get("zero_optimization") or {}).get("offload_optimizer") or {}
    return bool(offload.get("device", "none") != "none")


def make_torch_s(config: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
    """Makes torch's Adam or AdamW for a DeepSpeed JSON: fused into one kernel if the state is on a GPU."""
    from deepspeed.accelerator import get_accelerator  # slow to import, and this module also reads settings

    block = config["optimizer"]
    params = {name: value for name, value in block.get("params", {}).items() if name in _COMMON - {"weight_decay"}}
    if "betas" in params:
        params["betas"] = tuple(params["betas"])
    on_gpu = get_accelerator().device_name() == "cuda" and not _offloads(config)
    # As in DeepSpeed, Adam is AdamW unless the JSON says otherwise.
    decoupled = block["type"] == "AdamW" or block.get("params", {}).get("adam_w_mode", True)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    return kind(list(groups), fused=True if on_gpu else None, **params)  # None: torch decides
