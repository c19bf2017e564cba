"""The optimizers that a DeepSpeed JSON can name, the project's and torch's, and their parameter groups.

Lamb                            the project's own
AdamW without bias correction   the same class with every trust ratio 1, as in the paper's code
Adam, AdamW                     torch's, fused into one kernel
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from annotated_types import Len
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from pipeline.engine.lamb import Lamb

KINDS = ("weight", "exp_avg", "exp_avg_sq")
"""What is kept of each element in fp32: w, m and v. Adam and LAMB both use the last two names."""

AboveZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Strict(BaseModel):
    """A block of the JSON: no other keys, and no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Parameters(Strict):
    """`optimizer.params` of LAMB."""

    lr: AboveZero
    betas: Annotated[list[Beta], Len(2, 2)] = [0.9, 0.999]
    eps: AboveZero = 1e-6
    weight_decay: AtLeastZero = 0.01


class AdamParameters(Parameters):
    """`optimizer.params` of Adam and AdamW."""

    torch_adam: bool = True  # means nothing here: it is torch's
    adam_w_mode: bool = True
    bias_correction: Literal[True] = True


class PaperParameters(Parameters):
    """`optimizer.params` of AdamW without bias correction, as in the paper's code: LAMB with every trust ratio 1."""

    bias_correction: Literal[False] = False


TYPES = ("Lamb", "Adam", "AdamW")  # what `optimizer.type` may be


def parameters_of(block: Mapping[str, Any]) -> type[Parameters]:
    """What `params` of an `optimizer` block may have."""
    if block["type"] == "Lamb":
        return Parameters
    return PaperParameters if block.get("params", {}).get("bias_correction") is False else AdamParameters


def make_optimizer(config: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
    """Makes the optimizer of a DeepSpeed JSON. groups: see `parameter_groups`; they have the weight decay."""
    block = config["optimizer"]
    given = block.get("params", {})
    params = {name: given[name] for name in ("lr", "betas", "eps") if name in given}
    if "betas" in params:
        params["betas"] = tuple(params["betas"])
    if block["type"] == "Lamb":
        return Lamb(groups, **params)
    if parameters_of(block) is PaperParameters:
        return Lamb([group | {"trust_ratio": False} for group in groups], **params)
    # As in DeepSpeed, Adam is AdamW unless the JSON says otherwise.
    is_decoupled = block["type"] == "AdamW" or given.get("adam_w_mode", True)
    kind = torch.optim.AdamW if is_decoupled else torch.optim.Adam
    return kind(list(groups), fused=True, **params)


def parameter_groups(model: nn.Module, weight_decay: float = 0.01) -> list[dict[str, Any]]:
    """The two groups of ALBERT's code: matrices, and LayerNorm weights with all biases.

    The first group has weight decay and a trust ratio, the second has neither. A shared parameter appears once. A bias
    is a parameter called "bias" or "..._bias". Empty groups are left out. Returns dictionaries with the keys "params",
    "weight_decay" and "trust_ratio".
    """
    norms = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.LayerNorm)
        for parameter in module.parameters(recurse=False)
    }
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        is_bias = name.endswith((".bias", "_bias")) or name == "bias"
        (plain if is_bias or id(parameter) in norms else decayed).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": weight_decay, "trust_ratio": True},
        {"params": plain, "weight_decay": 0.0, "trust_ratio": False},
    ]
    return [group for group in groups if group["params"]]


def describe_groups(groups: list[dict[str, Any]], optimizer: str) -> str:
    """One line per group: how many tensors and parameters it has, and how `optimizer` updates them."""
    lines = []
    for group in groups:
        tensors: list[Tensor] = group["params"]
        count = sum(getattr(tensor, "ds_numel", tensor.numel()) for tensor in tensors)
        line = f"{optimizer}: {len(tensors)} tensors, {count:,} parameters: "
        line += f"weight decay {group['weight_decay']:g}" if group["weight_decay"] else "no weight decay"
        if optimizer == "Lamb":
            line += ", scaled by its trust ratio" if group["trust_ratio"] else ", trust ratio 1"
        lines.append(line)
    return "\n".join(lines)
