"""The optimizer's parameter groups: which tensors are decayed and which have a trust ratio."""

from typing import Any

from torch import Tensor, nn


def parameter_groups(model: nn.Module, weight_decay: float = 0.01) -> list[dict[str, Any]]:
    """The two groups of ALBERT's code: matrices, and LayerNorm weights with all biases.

    The first group has weight decay and a trust ratio, the second has neither. A shared parameter appears once. A bias
    is a parameter called "bias" or "..._bias". Empty groups are left out.

    Returns:
        Dictionaries with the keys "params", "weight_decay" and "trust_ratio".
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


def describe(groups: list[dict[str, Any]], optimizer: str) -> str:
    """One line per group: how many tensors and parameters it has, and how `optimizer` updates them.

    Only LAMB has trust ratios, so only its lines mention them.
    """
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
