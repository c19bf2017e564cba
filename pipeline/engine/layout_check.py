"""Attaches the project's code to a new engine, and shows that the engine's buffers are what `zero_layout` says.

The checks take the place of a list of allowed versions. They see a changed layout. They do not see wrong gradients:
for these, the tests of the engine are run with a new version before it is added to `TRIED`. The checks are:

    at the start             each element of each tensor is in exactly one slice, over all ranks
                             the values of the slices are those of the model's weights
    in LAMB's first update   the trust ratio of one tensor per parameter group is that of the whole tensor
"""

import math
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed import DeepSpeedEngine
from torch import Tensor
from torch.torch_version import TorchVersion as Version

from common.errors import UserError
from pipeline.engine import workarounds, zero_layout
from pipeline.engine.lamb import Lamb, TensorSlice

TRIED = ("0.19.8",)
"""The versions of DeepSpeed with which the tests of the engine have passed; requirements.txt has the last one. Versions
before the first one are refused: 0.18.9 and 0.19.0 have wrong gradients (docs/training.md)."""
MAX_COMPARED = 1 << 22
"""Elements of a tensor whose trust ratio is compared: three fp32 copies of it are summed over the ranks."""
TOLERANCE = 1e-4  # relative, of a trust ratio


def attach(engine: DeepSpeedEngine) -> str:
    """Applies the workarounds to a new engine, checks its layout and tells its LAMB the layout. Collective, once.

    Returns a note if this version of DeepSpeed is not in `TRIED`; "" otherwise. Raises UserError: on all ranks; the
    buffers are not what `zero_layout` says.
    """
    version = deepspeed.__version__.split("+")[0]
    if Version(version) < Version(TRIED[0]):
        raise _refusal(f"versions before {TRIED[0]} were not shown to work, and some add up gradients wrongly")
    try:
        workarounds.apply(engine)
        slices = zero_layout.slices(engine)
        parts = _check_slices(engine, slices)
    except AttributeError as error:  # a private name that this version does not have
        raise _refusal(str(error)) from error
    if isinstance(engine.basic_optimizer, Lamb):
        divided = zero_layout.process_group(engine) if zero_layout.stage(engine) > 0 else None
        engine.basic_optimizer.attach(slices, divided)
        _check_first_ratios(engine, slices, parts)
    return "" if version in TRIED else f"deepspeed {version} is untried here; its buffers have passed the checks"


def _refusal(problem: str) -> UserError:
    version = deepspeed.__version__
    return UserError(f"deepspeed {version} would train wrongly: {problem}; pip install deepspeed=={TRIED[-1]}")


def _check_slices(engine: DeepSpeedEngine, slices: list[TensorSlice]) -> list[list[tuple[int, int]]]:
    """Checks the slices at the start. Returns (start, length) of each tensor on each rank: [tensor][rank]."""
    mine = [(part.start, part.length) for part in zero_layout.owned_slices(engine)]
    gathered: list[Any] = [None] * dist.get_world_size(zero_layout.process_group(engine))
    dist.all_gather_object(gathered, (mine, _differing_tensor(engine, slices)), zero_layout.process_group(engine))
    parts = [list(of_tensor) for of_tensor in zip(*(places for places, _ in gathered), strict=True)]
    for slice_, of_tensor in zip(slices, parts, strict=True):
        try:
            zero_layout.check_cover(slice_.name, math.prod(slice_.shape), of_tensor)
        except RuntimeError as error:
            raise _refusal(str(error)) from None
    for rank, (_, name) in enumerate(gathered):
        if name:
            raise _refusal(f"the optimizer's weights of {name} on rank {rank} are not the model's")
    return parts


@torch.no_grad()
def _differing_tensor(engine: DeepSpeedEngine, slices: list[TensorSlice]) -> str:
    """The first tensor of which this rank's slice has other values than the model; "" if there is none. Collective."""
    differing = []
    for slice_, parameter in zip(slices, engine.module.parameters(), strict=True):
        with deepspeed.zero.GatheredParameters([parameter], enabled=zero_layout.stage(engine) == 3):
            weights = parameter.detach().reshape(-1)[slice_.start : slice_.start + slice_.length]
            is_inside = slice_.offset + slice_.length <= slice_.flat.numel()
            if not is_inside or not torch.equal(weights, slice_.weight.to(weights.dtype)):
                differing.append(slice_.name)
    return differing[0] if differing else ""


def _check_first_ratios(engine: DeepSpeedEngine, slices: list[TensorSlice], parts: list[list[tuple[int, int]]]) -> None:
    """Makes LAMB's first update check the trust ratio of one tensor per group, of those that most ranks share."""
    lamb, groups = engine.basic_optimizer, list(engine.basic_optimizer.param_groups)
    scaled = [(slice_, math.prod(slice_.shape), sum(length > 0 for _, length in of_tensor))
              for slice_, of_tensor in zip(slices, parts) if groups[slice_.group]["trust_ratio"]]  # fmt: skip
    scaled.sort(key=lambda entry: (entry[1] <= MAX_COMPARED, entry[2], -entry[1]))  # the last of a group is taken
    waiting = list({slice_.group: slice_ for slice_, *_ in scaled}.values())
    before: dict[str, Tensor] = {}
    hooks: list[Any] = []

    def keep_weights(*_: Any) -> None:
        stepped = {id(tensor) for group in lamb.param_groups for tensor in group["params"]}
        before.update({slice_.name: slice_.weight.clone() for slice_ in waiting if id(slice_.flat) in stepped})

    def compare(*_: Any) -> None:
        for slice_ in [slice_ for slice_ in waiting if slice_.name in before]:
            waiting.remove(slice_)
            _check_ratio(engine, groups[slice_.group], slice_, before.pop(slice_.name))
        if not waiting:
            for hook in hooks:
                hook.remove()

    hooks += [lamb.register_step_pre_hook(keep_weights), lamb.register_step_post_hook(compare)]


@torch.no_grad()
def _check_ratio(engine: DeepSpeedEngine, group: dict[str, Any], slice_: TensorSlice, weight: Tensor) -> None:
    """Compares the last trust ratio of a tensor of `group` with a plain one; its slice was `weight`. Collective."""
    lamb = engine.basic_optimizer
    state = lamb.state[slice_.flat]
    whole = weight.new_zeros(3, math.prod(slice_.shape))  # w, m, v
    for row, values in zip(whole, (weight, slice_.of(state["exp_avg"]), slice_.of(state["exp_avg_sq"]))):
        row[slice_.start : slice_.start + slice_.length] = values
    if zero_layout.stage(engine) > 0:
        dist.all_reduce(whole, group=zero_layout.process_group(engine))
    w, m, v = whole.double()
    update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * w
    weight_norm, update_norm = w.norm().item(), update.norm().item()
    wanted = weight_norm / update_norm if weight_norm and update_norm else 1.0
    ratio = lamb.last_trust_ratios[lamb.tensor_names.index(slice_.name)].item()
    if math.isfinite(wanted) and not math.isclose(ratio, wanted, rel_tol=TOLERANCE):
        raise _refusal(f"LAMB's trust ratio of {slice_.name} is {ratio:g}, and that of the whole tensor {wanted:g}")
