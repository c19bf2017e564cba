"""Where each tensor's elements live in DeepSpeed's flat buffers.

With `pipeline.defects` the one place that knows the insides of DeepSpeed's optimizers; paths below are inside that
package, of the version in `pipeline.defects.DEEPSPEED`. `attach(engine)` is called once, right after
`deepspeed.initialize`.

    stage 0 fp32  the model's parameters are the weights; each rank holds all of them
    stage 0 bf16  runtime/fp16/unfused_optimizer.py: an fp32 copy of each parameter on each rank
    stage 1, 2    runtime/zero/stage_1_and_2.py (runtime/bf16_optimizer.py for bf16 accumulated in fp32): a
                  flat fp32 buffer for each parameter group, its tensors one after the other, cut into equal slices
    stage 3       runtime/zero/stage3.py: every tensor cut into ceil(n / world) elements a rank, a rank's cuts
                  one after the other in sub-groups, a last cut followed by padding that is never initialised
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from data_prep.errors import UserError
from pipeline import defects
from pipeline.lamb import Lamb

STATE_NAMES = ("exp_avg", "exp_avg_sq")
"""The fp32 state that Adam and LAMB keep for each element, by the names both give it."""


@dataclass(frozen=True, eq=False)
class Segment:
    """The elements of one tensor that this rank updates, in fp32.

    Attributes:
        name: of the parameter in the model.
        shape: of the whole tensor.
        group: index of its parameter group in the optimizer.
        start, length: this rank's elements [start, start + length) of the flattened tensor; length may be 0.
        flat: the optimizer's tensor that holds them (a key of `optimizer.state`).
        offset: where they start in the flattened `flat`.
    """

    name: str
    shape: tuple[int, ...]
    group: int
    start: int
    length: int
    flat: Tensor
    offset: int

    @property
    def master(self) -> Tensor:
        """fp32 (length,): a view of the weights that the optimizer updates."""
        return self._cut(self.flat.detach())

    def state(self, optimizer: torch.optim.Optimizer, name: str) -> Tensor:
        """fp32 (length,): a view of the optimizer's state `name`, as `STATE_NAMES` has them."""
        return self._cut(optimizer.state[self.flat][name])

    def _cut(self, flat: Tensor) -> Tensor:
        return flat.view(-1).narrow(0, self.offset, self.length)


def stage(engine: Any) -> int:
    """The engine's ZeRO stage, 0 to 3."""
    return int(engine.zero_optimization_stage())


def process_group(engine: Any) -> dist.ProcessGroup:
    """The ranks among which the samples (and from stage 1 on the weights) are divided."""
    return engine.seq_data_parallel_group


def segments(engine: Any) -> list[Segment]:
    """One segment for each named parameter, in the model's order: the same list on all ranks but for places.

    A shared parameter appears once, under its first name; a compiled layer's parameters under their own. At
    stage 0 each rank has the whole of each tensor. Raises ValueError for a parameter that is not trained.
    """
    defects.check_version()
    optimizer = engine.optimizer
    if stage(engine) == 3:
        found = _partitioned_tensors(optimizer)
    elif hasattr(optimizer, "single_partition_of_fp32_groups"):
        found = _slices_of_groups(optimizer.bit16_groups, optimizer.single_partition_of_fp32_groups)
    elif hasattr(optimizer, "fp32_groups_flat_partition"):
        found = _slices_of_groups(optimizer.bf16_groups, optimizer.fp32_groups_flat_partition)
    elif hasattr(optimizer, "fp32_groups"):
        found = _whole_tensors(optimizer.fp16_groups, optimizer.fp32_groups)
    else:
        groups = [group["params"] for group in engine.basic_optimizer.param_groups]
        found = _whole_tensors(groups, groups)

    result = []
    for name, parameter in engine.module.named_parameters():
        name = name.replace("_orig_mod.", "")  # torch.compile's wrapper
        if id(parameter) not in found:
            raise ValueError(f"parameter {name} is in no group of the optimizer; every parameter must be trained")
        group, shape, start, length, flat, offset = found[id(parameter)]
        if flat.dtype != torch.float32:
            raise UserError(
                f"the optimizer updates {name} in {flat.dtype}, without fp32 weights behind it; "
                'set "zero_optimization": {"stage": 1}'
            )
        result.append(Segment(name, shape, group, start, length, flat, offset))
    return result


# (group, shape, start, length, flat, offset) by id of the model's parameter
_Found = dict[int, tuple[int, tuple[int, ...], int, int, Tensor, int]]


def _whole_tensors(groups: Sequence[Sequence[Tensor]], masters: Sequence[Sequence[Tensor]]) -> _Found:
    return {
        id(parameter): (number, tuple(parameter.shape), 0, parameter.numel(), master, 0)
        for number, (group, copies) in enumerate(zip(groups, masters))
        for parameter, master in zip(group, copies)
    }


def _slices_of_groups(groups: Sequence[Sequence[Any]], flats: Sequence[Tensor]) -> _Found:
    """From the mapping of `utils/mixed_precision_linkage.py`, None for a tensor outside this rank's slice."""
    found: _Found = {}
    for number, (group, flat) in enumerate(zip(groups, flats)):
        for parameter in group:
            mapping = parameter._hp_mapping
            if mapping is None:
                start, length, offset = 0, 0, 0
            else:
                address = mapping.get_hp_fragment_address()
                start, length, offset = mapping.lp_fragment_address.start, address.numel, address.start
            found[id(parameter)] = (number, tuple(parameter.shape), start, length, flat, offset)
    return found


def _partitioned_tensors(optimizer: Any) -> _Found:
    """From `grad_position`, whose lengths count the padding of a tensor's last cut: clamped to the tensor."""
    found: _Found = {}
    for sub_group, parameters in enumerate(optimizer.fp16_groups):
        flat = optimizer.fp32_partitioned_groups_flat[sub_group]
        number = optimizer.sub_group_to_group_id[sub_group]
        for parameter in parameters:
            _, offset, cut = optimizer.grad_position[optimizer.get_param_id(parameter)]
            start = min(cut * optimizer._get_param_partition_rank(parameter), parameter.ds_numel)
            length = min(cut, parameter.ds_numel - start)
            found[id(parameter)] = (number, tuple(parameter.ds_shape), start, length, flat, offset)
    return found


def prepare_states(engine: Any, pieces: Sequence[Segment]) -> None:
    """Gives the optimizer's tensors of `pieces` a state of zeros where they have none, as its first step would."""
    optimizer = engine.basic_optimizer
    for segment in pieces:
        if isinstance(optimizer, Lamb):
            optimizer.initialise_state(segment.flat)
        elif not optimizer.state[segment.flat]:
            step = torch.tensor(0.0) if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) else 0
            zeros = {name: torch.zeros_like(segment.flat.detach()) for name in STATE_NAMES}
            optimizer.state[segment.flat].update({"step": step, **zeros})


def optimizer_steps(engine: Any) -> int:
    """The number of updates that the optimizer has made (skipped ones not among them)."""
    # DeepSpeed's FusedAdam counts in one tensor's state only, the last of a group.
    return max((int(state["step"]) for state in engine.basic_optimizer.state.values() if state), default=0)


def set_optimizer_steps(engine: Any, steps: int) -> None:
    """Sets the count of updates in every state that there is."""
    for state in engine.basic_optimizer.state.values():
        if torch.is_tensor(state.get("step")):
            state["step"].fill_(steps)
        else:
            state["step"] = steps


def owned(segment: Segment, rank: int, world: int) -> Segment:
    """This rank's part, of ceil(n / world) elements, the last shorter, of a segment that every rank holds."""
    part = math.ceil(segment.length / world)
    start = min(part * rank, segment.length)
    length = min(part, segment.length - start)
    offset = segment.offset + start
    return Segment(segment.name, segment.shape, segment.group, segment.start + start, length, segment.flat, offset)


def owned_segments(engine: Any) -> list[Segment]:
    """As `segments`, but at every stage each element belongs to exactly one rank."""
    found = segments(engine)
    if stage(engine) > 0:
        return found
    group = process_group(engine)
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    return [owned(segment, rank, world) for segment in found]


def check_cover(name: str, elements: int, pieces: Sequence[tuple[int, int]]) -> None:
    """Raises RuntimeError unless `pieces` (start, length) cover [0, elements) exactly once."""
    end = 0
    for start, length in sorted(piece for piece in pieces if piece[1]):
        if start != end:
            fault = "are in no rank's buffer" if start > end else "are in the buffers of two ranks"
            raise RuntimeError(f"elements {min(start, end)} to {max(start, end)} of {name} {fault}")
        end = start + length
    if end != elements:
        raise RuntimeError(f"{name} has {elements} elements, and the ranks' buffers hold {end} of them")


def check_all_covered(engine: Any) -> None:
    """Checks over all ranks that each element of each tensor is updated by one rank. Collective."""
    mine = [(segment.name, segment.start, segment.length) for segment in owned_segments(engine)]
    group = process_group(engine)
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, mine, group=group)
    for index, segment in enumerate(segments(engine)):
        entries = [pieces[index] for pieces in gathered]
        if any(name != segment.name for name, _, _ in entries):
            raise RuntimeError(f"the ranks disagree about the order of the tensors at {segment.name}")
        check_cover(segment.name, math.prod(segment.shape), [(start, length) for _, start, length in entries])


def attach(engine: Any) -> None:
    """Mends and checks a new engine, and tells its LAMB where the tensors lie. Collective, called once."""
    defects.mend(engine)
    check_all_covered(engine)
    if isinstance(engine.basic_optimizer, Lamb):
        divided = process_group(engine) if stage(engine) > 0 else None
        engine.basic_optimizer.attach(segments(engine), divided, engine.device)


@torch.no_grad()
def refresh_model_weights(engine: Any) -> None:
    """Makes the model's weights on all ranks from the fp32 ones, after a load changed those. Collective."""
    optimizer = engine.optimizer
    if stage(engine) == 3:
        # The second half of its step(): sub-group by sub-group, then the small tensors that stay whole.
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


def loss_scale(engine: Any) -> float:
    """The factor that fp16 losses carry at present; 1 in other precisions.

    `engine.loss_scale()` is the JSON's setting, 0 for a dynamic one.
    """
    return float(getattr(engine.optimizer, "cur_scale", 1.0)) if engine.fp16_enabled() else 1.0


_SCALER_STATE = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")


def _dynamic_loss_scaler(engine: Any) -> Any | None:
    scaler = getattr(engine.optimizer, "loss_scaler", None)
    return scaler if getattr(scaler, "dynamic", False) else None


def loss_scaler_state(engine: Any) -> dict[str, float] | None:
    """What the dynamic loss scale of fp16 depends on beside its settings; None where there is none."""
    scaler = _dynamic_loss_scaler(engine)
    return None if scaler is None else {name: getattr(scaler, name) for name in _SCALER_STATE}


def set_loss_scaler_state(engine: Any, state: dict[str, float] | None) -> None:
    """Restores what `loss_scaler_state` gave; without effect where either side has no dynamic loss scale."""
    scaler = _dynamic_loss_scaler(engine)
    if scaler is not None and state is not None:
        for name in _SCALER_STATE:
            setattr(scaler, name, state[name])
