"""LAMB (You et al., arXiv 1904.00962) as ALBERT trains with it, right wherever ZeRO puts the elements.

For each tensor w with gradient g, and with no bias correction and no clamp of the ratio:

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g^2
    u = m / (sqrt(v) + eps) + weight_decay * w
    w = w - lr * r * u          r = |w| / |u|, and 1 where either norm is 0

LayerNorm weights and every bias have weight_decay = 0 and r = 1, as in the ALBERT paper's code.

The ratio belongs to a whole tensor. ZeRO hands an optimizer flat buffers that hold slices of many tensors, so
after `deepspeed.initialize` the optimizer is told where each tensor lies (`Lamb.attach`, normally through
`pipeline.zero.attach`); it then sums the squared norms of w and u over the ranks before it divides.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, overload

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Placed(Protocol):
    """What `Lamb.attach` wants to know of a tensor; `pipeline.zero.Segment` is one."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> int: ...
    @property
    def flat(self) -> Tensor: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...


class _Piece(NamedTuple):
    """Elements [offset, offset + length) of a parameter belong to the tensor number `tensor`."""

    tensor: int
    offset: int
    length: int


class _Plan(NamedTuple):
    """What one call of `step` on certain parameters works on; made once, it holds no values."""

    pieces: list[tuple[int, _Piece]]  # (index of the parameter in the call, piece), empty pieces left out
    weights: list[Tensor]  # views of those pieces, in the same order
    tensors: Tensor  # int64 (T,): numbers of all tensors of the call, whether this rank holds a piece or not
    slots: Tensor  # int64 (len(pieces),): where each piece's tensor stands in `tensors`


class Lamb(torch.optim.Optimizer):
    """LAMB. Group keys: lr, betas, eps, weight_decay, trust_ratio (False: the ratio is 1).

    State of a parameter: exp_avg (m) and exp_avg_sq (v), fp32 and of the parameter's shape, and step (int).
    Alone it is an ordinary optimizer, each parameter being one tensor. `step` never waits for the device.

    Attributes:
        tensor_names: of the trust-scaled tensors (numbers until `attach` names them).
        last_trust_ratios: fp32 (len(tensor_names),) on the weights' device, the ratios of the last step.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        trust_ratio: bool = True,
    ) -> None:
        """Raises ValueError for a setting out of its range."""
        if lr < 0.0:
            raise ValueError(f"lr is {lr}; it must not be negative")
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas are {betas}; each must lie in [0, 1)")
        if eps <= 0.0:
            raise ValueError(f"eps is {eps}; it must be positive")
        if weight_decay < 0.0:
            raise ValueError(f"weight_decay is {weight_decay}; it must not be negative")
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "trust_ratio": trust_ratio,
        }
        super().__init__(params, defaults)
        self._attached = False
        self._process_group: dist.ProcessGroup | None = None
        self._communication_device: torch.device | None = None
        self._plans: dict[tuple[int, ...], _Plan] = {}
        self._pieces: dict[Tensor, list[_Piece]] = {}
        self.tensor_names: list[str] = []
        self.last_trust_ratios = torch.ones(0)

    def attach(
        self,
        segments: Sequence[Placed],
        process_group: dist.ProcessGroup | None,
        communication_device: torch.device | None = None,
    ) -> None:
        """Tells where the elements of each tensor lie on this rank.

        Args:
            segments: one for each tensor of the model, the same tensors in the same order on all ranks; of
                length 0 where this rank holds nothing of it. `flat` is the tensor that stands in a group's
                "params" when `step` is called.
            process_group: the ranks among which the tensors are divided; None where each rank holds all.
            communication_device: where `process_group` can sum, if not where the weights are (CPU offload).
        """
        self._attached = True
        self._process_group = process_group
        self._communication_device = communication_device
        self._plans.clear()
        self._pieces = {}
        self.tensor_names = []
        for segment in segments:
            number = -1
            if self.param_groups[segment.group]["trust_ratio"]:
                number = len(self.tensor_names)
                self.tensor_names.append(segment.name)
            self._pieces.setdefault(segment.flat, []).append(_Piece(number, segment.offset, segment.length))
        self.last_trust_ratios = torch.ones(len(self.tensor_names))

    def initialise_state(self, parameter: Tensor) -> dict[str, Any]:
        """The state of `parameter`, made of zeros if there is none yet."""
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter, dtype=torch.float32)
            state["exp_avg_sq"] = torch.zeros_like(parameter, dtype=torch.float32)
        return state

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of the parameters that have a gradient. All ranks must call it for the same groups.

        DeepSpeed calls it for one group (stages 1 and 2) or sub-group (stage 3) at a time, the others hidden.
        Groups without a trust ratio need no communication, so the recipe's two make one all-reduce a step.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scaled: list[tuple[dict[str, Any], list[Tensor], list[Tensor]]] = []
        for group in self.param_groups:
            if self._attached:  # ZeRO makes a missing gradient 0, and stages must not differ
                for parameter in group["params"]:
                    if parameter.grad is None:
                        parameter.grad = torch.zeros_like(parameter)
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            updates = self._updates(group, parameters)
            if group["trust_ratio"]:
                scaled.append((group, parameters, updates))
            else:
                plan = self._plan(parameters, scaled=False)
                if plan.weights:  # a rank may hold nothing but padding of a sub-group
                    torch._foreach_add_(plan.weights, _views(plan, updates), alpha=-group["lr"])
        if scaled:
            self._scaled_step(scaled)
        return loss

    def _updates(self, group: dict[str, Any], parameters: list[Tensor]) -> list[Tensor]:
        """Advances m and v and returns u of each parameter, over whole flat buffers (padding included)."""
        beta1, beta2 = group["betas"]
        states = [self.initialise_state(parameter) for parameter in parameters]
        for state in states:
            state["step"] += 1
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        exp_avg = [state["exp_avg"] for state in states]
        exp_avg_sq = [state["exp_avg_sq"] for state in states]
        torch._foreach_lerp_(exp_avg, gradients, 1.0 - beta1)
        torch._foreach_mul_(exp_avg_sq, beta2)
        torch._foreach_addcmul_(exp_avg_sq, gradients, gradients, 1.0 - beta2)
        # 1/(sqrt(v) + eps) * m in place: one temporary buffer of the weights' size instead of two.
        updates = list(torch._foreach_sqrt(exp_avg_sq))
        torch._foreach_add_(updates, group["eps"])
        torch._foreach_reciprocal_(updates)
        torch._foreach_mul_(updates, exp_avg)
        if group["weight_decay"] != 0.0:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        return updates

    def _scaled_step(self, scaled: list[tuple[dict[str, Any], list[Tensor], list[Tensor]]]) -> None:
        """w -= lr * r * u with the ratio of each whole tensor; one all-reduce for all groups given."""
        plan = self._plan([parameter for _, parameters, _ in scaled for parameter in parameters], scaled=True)
        updates = _views(plan, [update for _, _, updates in scaled for update in updates])
        rates = [group["lr"] for group, parameters, _ in scaled for _ in parameters]
        ratios = self._trust_ratios(plan, updates)  # fp32 (T,)
        if plan.weights:
            factors = list(ratios[plan.slots].unbind())
            torch._foreach_mul_(updates, factors)
            if len(set(rates)) == 1:
                torch._foreach_add_(plan.weights, updates, alpha=-rates[0])
            else:
                torch._foreach_mul_(updates, [-rates[parameter] for parameter, _ in plan.pieces])
                torch._foreach_add_(plan.weights, updates)
        if self.last_trust_ratios.device != ratios.device:
            self.last_trust_ratios = self.last_trust_ratios.to(ratios.device)
        self.last_trust_ratios[plan.tensors] = ratios

    def _trust_ratios(self, plan: _Plan, updates: list[Tensor]) -> Tensor:
        """fp32 (T,): |w| / |u| of each tensor of the plan over all ranks, 1 where either is 0."""
        device = plan.tensors.device
        squares = torch.zeros(2, len(plan.tensors), dtype=torch.float64, device=device)
        if plan.weights:
            squares[:, plan.slots] = squared_norms(plan.weights + updates).view(2, -1)
        if self._process_group is not None and dist.get_world_size(self._process_group) > 1:
            if self._communication_device is not None and self._communication_device != device:
                shared = squares.to(self._communication_device)
                dist.all_reduce(shared, group=self._process_group)
                squares = shared.to(device)
            else:
                dist.all_reduce(squares, group=self._process_group)
        weight_norm, update_norm = squares.sqrt()
        defined = (weight_norm > 0.0) & (update_norm > 0.0)
        return torch.where(defined, weight_norm / update_norm, 1.0).float()

    def _plan(self, parameters: list[Tensor], scaled: bool) -> _Plan:
        key = tuple(map(id, parameters))
        if key not in self._plans:
            pieces: list[tuple[int, _Piece]] = []
            tensors: list[int] = []
            for index, parameter in enumerate(parameters):
                for piece in self._pieces_of(parameter, scaled):
                    tensors.append(piece.tensor)
                    if piece.length:
                        pieces.append((index, piece))
            place = {tensor: slot for slot, tensor in enumerate(tensors)}
            device = parameters[0].device
            self._plans[key] = _Plan(
                pieces,
                _cut(pieces, [parameter.detach() for parameter in parameters]),
                torch.tensor(tensors, device=device),
                torch.tensor([place[piece.tensor] for _, piece in pieces], dtype=torch.int64, device=device),
            )
        return self._plans[key]

    def _pieces_of(self, parameter: Tensor, scaled: bool) -> list[_Piece]:
        """Until `attach`, a parameter is one tensor, and numbered when it is first met."""
        if parameter not in self._pieces:
            if self._attached:
                raise RuntimeError("Lamb met a parameter that it was not told of; call attach again")
            number = -1
            if scaled:
                number = len(self.tensor_names)
                self.tensor_names.append(str(number))
                self.last_trust_ratios = torch.ones(len(self.tensor_names))
            self._pieces[parameter] = [_Piece(number, 0, parameter.numel())]
        return self._pieces[parameter]


def squared_norms(tensors: list[Tensor]) -> Tensor:
    """float64 (len(tensors),): the sum of squares of each, to 1e-6 whatever its size, so that a cut never shows."""
    if tensors[0].device.type != "cpu":
        return torch.stack(torch._foreach_norm(tensors)).double().square()
    # On a CPU torch's norm adds up in a few fp32 numbers, 0.5 % off for 67 million elements; its sum does not.
    return torch.stack([_sum_of_squares(tensor) for tensor in tensors])


def _sum_of_squares(tensor: Tensor) -> Tensor:
    blocks = tensor.reshape(-1).split(1 << 18)  # whose squares stay in the cache
    return torch.stack([block.square().sum() for block in blocks]).double().sum()


def _cut(pieces: list[tuple[int, _Piece]], flats: list[Tensor]) -> list[Tensor]:
    """Views of `pieces` in `flats`; a tensor that is one whole piece keeps its shape and strides."""
    return [
        flats[index] if piece.length == flats[index].numel() else flats[index].narrow(0, piece.offset, piece.length)
        for index, piece in pieces
    ]


def _views(plan: _Plan, flats: list[Tensor]) -> list[Tensor]:
    return _cut(plan.pieces, flats)


def parameter_groups(model: nn.Module, weight_decay: float = 0.01) -> list[dict[str, Any]]:
    """The recipe's two groups: what is decayed and trust-scaled; LayerNorm weights and biases, neither.

    A shared parameter appears once. A bias is what is called "bias" or "..._bias". Empty groups are left out.
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


def describe(groups: list[dict[str, Any]], optimizer: str = "Lamb") -> str:
    """One line a group, for the start of a run: how many tensors and parameters are decayed and scaled."""
    lines = []
    for group in groups:
        tensors: list[Tensor] = group["params"]
        count = sum(getattr(tensor, "ds_numel", tensor.numel()) for tensor in tensors)
        decay = f"weight decay {group['weight_decay']:g}" if group["weight_decay"] else "no weight decay"
        ratio = "scaled by its trust ratio" if group["trust_ratio"] else "trust ratio 1"
        lines.append(f"{optimizer}: {len(tensors)} tensors, {count:,} parameters: {decay}, {ratio}")
    return "\n".join(lines)
