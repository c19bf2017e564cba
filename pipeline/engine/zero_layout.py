"""Finds where each tensor's elements lie in DeepSpeed's flat buffers, and shows at each start that they do.

Paths below are of DeepSpeed 0.19.8.

    stage 0 fp32  the model's parameters are the weights; each rank holds all of them
    stage 0 bf16  runtime/fp16/unfused_optimizer.py: an fp32 copy of each parameter on each rank
    stage 1, 2    runtime/zero/stage_1_and_2.py (runtime/bf16_optimizer.py for bf16 accumulated in fp32): a flat fp32
                  buffer for each parameter group. Its tensors follow one another. It is cut into equal parts, one per
                  rank, regardless of the tensors' borders
    stage 3       runtime/zero/stage3.py: every tensor is cut into parts of ceil(n / world) elements, one per rank.
                  A rank's parts follow one another in sub-groups. The padding behind a tensor's last part is
                  uninitialised memory

`attach` applies the workarounds to a new engine, checks its buffers, and tells its LAMB the layout. The checks take the
place of a list of allowed versions. They see a changed layout. They do not see wrong gradients: for these, the tests of
the engine are run with a new version before it is added to `TRIED`. The checks are:

    at the start             each element of each tensor is in exactly one slice, over all ranks
                             the values of the slices are those of the model's weights
    in LAMB's first update   the trust ratio of one tensor per parameter group is that of the whole tensor
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed import DeepSpeedEngine
from torch import Tensor
from torch.torch_version import TorchVersion as Version

from common.errors import UserError
from pipeline.engine import workarounds
from pipeline.engine.lamb import Lamb, TensorSlice

TRIED = ("0.19.8",)
"""The versions of DeepSpeed with which the tests of the engine have passed; requirements.txt has the last one. Versions
before the first one are refused: 0.16.9 and 0.19.0 have wrong gradients in fp16."""
MAX_COMPARED = 1 << 22
"""Elements of a tensor whose trust ratio is compared: three fp32 copies of it are summed over the ranks."""
TOLERANCE = 1e-4  # relative, of a trust ratio


def stage(engine: DeepSpeedEngine) -> int:
    """The engine's ZeRO stage, 0 to 3."""
    return int(engine.zero_optimization_stage())


def process_group(engine: DeepSpeedEngine) -> dist.ProcessGroup:
    """The ranks among which the samples (and from stage 1 on the weights) are divided."""
    return engine.seq_data_parallel_group


def slices(engine: DeepSpeedEngine) -> list[TensorSlice]:
    """This rank's slice of every named parameter, in the model's order, which is the same on all ranks.

    A shared parameter appears once, under its first name. A compiled layer's parameters have the names of the
    uncompiled layer. At stage 0 each rank has the whole of each tensor.

    Raises:
        ValueError: a parameter is in no parameter group.
        UserError: the optimizer updates 16-bit weights.
    """
    optimizer = engine.optimizer
    names = {
        id(parameter): name.replace("_orig_mod.", "")  # torch.compile's wrapper
        for name, parameter in engine.module.named_parameters()
    }
    if stage(engine) == 3:
        slices = _slices_at_stage_3(optimizer, names)
    elif hasattr(optimizer, "single_partition_of_fp32_groups"):
        slices = _slices_of_groups(optimizer.bit16_groups, optimizer.single_partition_of_fp32_groups, names)
    elif hasattr(optimizer, "fp32_groups_flat_partition"):
        slices = _slices_of_groups(optimizer.bf16_groups, optimizer.fp32_groups_flat_partition, names)
    elif hasattr(optimizer, "fp32_groups"):
        slices = _whole_tensors(optimizer.fp16_groups, optimizer.fp32_groups, names)
    else:
        groups = [group["params"] for group in engine.basic_optimizer.param_groups]
        slices = _whole_tensors(groups, groups, names)
    by_name = {slice_.name: slice_ for slice_ in slices}
    for name in names.values():
        if name not in by_name:
            raise ValueError(f"parameter {name} is in no group of the optimizer; every parameter must be trained")
        if (dtype := by_name[name].flat.dtype) != torch.float32:
            raise UserError(
                f"the optimizer updates {name} in {dtype}, without fp32 weights behind it; "
                'set "zero_optimization": {"stage": 1}'
            )
    return [by_name[name] for name in names.values()]


_Names = dict[int, str]  # by id of the model's parameter


def _whole_tensors(
    groups: Sequence[Sequence[Tensor]], masters: Sequence[Sequence[Tensor]], names: _Names
) -> Iterator[TensorSlice]:
    """Stage 0: each parameter has its own fp32 weights in `masters`."""
    for number, (group, copies) in enumerate(zip(groups, masters)):
        for parameter, master in zip(group, copies):
            shape, length = tuple(parameter.shape), parameter.numel()
            yield TensorSlice(names[id(parameter)], shape, number, 0, length, master, 0)


def _slices_of_groups(groups: Sequence[Sequence[Any]], flats: Sequence[Tensor], names: _Names) -> Iterator[TensorSlice]:
    """Stages 1 and 2: the mapping of utils/mixed_precision_linkage.py, None for a tensor outside this rank's part."""
    for number, (group, flat) in enumerate(zip(groups, flats)):
        for parameter in group:
            start, length, offset = 0, 0, 0
            if parameter._hp_mapping is not None:
                address = parameter._hp_mapping.get_hp_fragment_address()
                start = parameter._hp_mapping.lp_fragment_address.start
                length, offset = address.numel, address.start
            yield TensorSlice(names[id(parameter)], tuple(parameter.shape), number, start, length, flat, offset)


def _slices_at_stage_3(optimizer: Any, names: _Names) -> Iterator[TensorSlice]:
    """Stage 3: `grad_position`. Its lengths include the padding of a tensor's last part, which is left out here."""
    for sub_group, parameters in enumerate(optimizer.fp16_groups):
        flat = optimizer.fp32_partitioned_groups_flat[sub_group]
        number = optimizer.sub_group_to_group_id[sub_group]
        for parameter in parameters:
            _, offset, part = optimizer.grad_position[optimizer.get_param_id(parameter)]
            start = min(part * dist.get_rank(parameter.ds_process_group), parameter.ds_numel)
            length = min(part, parameter.ds_numel - start)
            shape = tuple(parameter.ds_shape)
            yield TensorSlice(names[id(parameter)], shape, number, start, length, flat, offset)


def owned_slices(engine: DeepSpeedEngine) -> list[TensorSlice]:
    """As `slices`, but each element belongs to exactly one rank at stage 0 as well."""
    found = slices(engine)
    if stage(engine) > 0:
        return found
    group = process_group(engine)
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    return [owned_part(whole, rank, world) for whole in found]


def owned_part(whole: TensorSlice, rank: int, world: int) -> TensorSlice:
    """This rank's part of a slice that every rank holds: ceil(n / world) elements, fewer on the last ranks."""
    part = math.ceil(whole.length / world)
    start = min(part * rank, whole.length)
    length = min(part, whole.length - start)
    return replace(whole, start=whole.start + start, length=length, offset=whole.offset + start)


def check_cover(name: str, elements: int, parts: Sequence[tuple[int, int]]) -> None:
    """Raises RuntimeError unless `parts` (start, length) cover [0, elements) exactly once."""
    filled = sorted(part for part in parts if part[1])
    ends = itertools.accumulate((length for _, length in filled), initial=0)
    if [*(start for start, _ in filled), elements] != list(ends):
        raise RuntimeError(f"the ranks' buffers do not hold each of the {elements} elements of {name} exactly once")


@torch.no_grad()
def refresh_model_weights(engine: DeepSpeedEngine) -> None:
    """Copies the optimizer's fp32 weights into the model on all ranks, after a load changed them. Collective."""
    optimizer = engine.optimizer
    if stage(engine) == 3:
        # The second half of DeepSpeed's step(): each sub-group, then the small tensors that stay whole.
        optimizer._partition_all_parameters()
        for sub_group in range(len(optimizer.fp16_groups)):
            optimizer._reassign_or_swap_out_partitioned_parameters(sub_group)
        if optimizer.persistent_parameters:
            optimizer.persistent_parameters[0].all_gather(optimizer.persistent_parameters)
    elif stage(engine) > 0:
        optimizer.update_lp_params()
    elif hasattr(optimizer, "fp32_groups"):
        for masters, parameters in zip(optimizer.fp32_groups, optimizer.fp16_groups):
            for master, parameter in zip(masters, parameters):
                parameter.data.copy_(master.data)


def loss_scale(engine: DeepSpeedEngine) -> float:
    """The factor by which fp16 losses are multiplied at present; 1 in other precisions."""
    # `engine.loss_scale()` is the JSON's setting, which is 0 for a dynamic scale.
    return float(getattr(engine.optimizer, "cur_scale", 1.0)) if engine.fp16_enabled() else 1.0


def attach(engine: DeepSpeedEngine) -> str:
    """Applies the workarounds to a new engine, checks its layout and tells its LAMB the layout. Collective, once.

    Returns a note if this version of DeepSpeed is not in `TRIED`; "" otherwise. Raises UserError: on all ranks; the
    buffers are not what is described above.
    """
    version = deepspeed.__version__.split("+")[0]
    if Version(version) < Version(TRIED[0]):
        raise _refusal(f"versions before {TRIED[0]} were not shown to work, and some add up gradients wrongly")
    try:
        workarounds.apply(engine)
        found = slices(engine)
        parts = _check_slices(engine, found)
    except AttributeError as error:  # a private name that this version does not have
        raise _refusal(str(error)) from error
    if isinstance(engine.basic_optimizer, Lamb):
        divided = process_group(engine) if stage(engine) > 0 else None
        engine.basic_optimizer.attach(found, divided)
        _check_first_ratios(engine, found, parts)
    return "" if version in TRIED else f"deepspeed {version} is untried here; its buffers have passed the checks"


def _refusal(problem: str) -> UserError:
    version = deepspeed.__version__
    return UserError(f"deepspeed {version} would train wrongly: {problem}; pip install deepspeed=={TRIED[-1]}")


def _check_slices(engine: DeepSpeedEngine, slices: list[TensorSlice]) -> list[list[tuple[int, int]]]:
    """Checks the slices at the start. Returns (start, length) of each tensor on each rank: [tensor][rank]."""
    mine = [(part.start, part.length) for part in owned_slices(engine)]
    gathered: list[Any] = [None] * dist.get_world_size(process_group(engine))
    dist.all_gather_object(gathered, (mine, _differing_tensor(engine, slices)), process_group(engine))
    parts = [list(of_tensor) for of_tensor in zip(*(places for places, _ in gathered), strict=True)]
    for slice_, of_tensor in zip(slices, parts, strict=True):
        try:
            check_cover(slice_.name, math.prod(slice_.shape), of_tensor)
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
        with deepspeed.zero.GatheredParameters([parameter], enabled=stage(engine) == 3):
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
        # Stage 3 may step some of the groups' buffers at a time.
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
    """Compares the last trust ratio of a tensor of `group` with a plain one. Collective.

    weight: its slice before the update.
    """
    lamb = engine.basic_optimizer
    state = lamb.state[slice_.flat]
    whole = weight.new_zeros(3, math.prod(slice_.shape))  # w, m, v
    for row, values in zip(whole, (weight, slice_.of(state["exp_avg"]), slice_.of(state["exp_avg_sq"]))):
        row[slice_.start : slice_.start + slice_.length] = values
    if stage(engine) > 0:
        dist.all_reduce(whole, group=process_group(engine))
    w, m, v = whole.double()
    update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * w
    weight_norm, update_norm = w.norm().item(), update.norm().item()
    wanted = weight_norm / update_norm if weight_norm and update_norm else 1.0
    ratio = lamb.last_trust_ratios[lamb.tensor_names.index(slice_.name)].item()
    if math.isfinite(wanted) and not math.isclose(ratio, wanted, rel_tol=TOLERANCE):
        raise _refusal(f"LAMB's trust ratio of {slice_.name} is {ratio:g}, and that of the whole tensor {wanted:g}")
