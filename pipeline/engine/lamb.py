"""LAMB (You et al., arXiv 1904.00962, Algorithm 2) as ALBERT's code uses it, correct at every ZeRO stage.

For each tensor w with gradient g:

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g^2
    u = m / (sqrt(v) + eps) + weight_decay * w
    r = |w| / |u|                                 the trust ratio; 1 where |w| or |u| is 0
    w = w - lr * r * u

There is no bias correction, and r is not clamped. LayerNorm weights and all biases have weight_decay = 0 and r = 1
(`pipeline.engine.optimizers`).

The trust ratio belongs to a whole tensor. Under ZeRO a rank holds flat buffers with slices of many tensors. After
`deepspeed.initialize`, `Lamb.attach` is told where each tensor's elements lie (`pipeline.engine.zero_layout.attach`
does this); the squared norms |w|^2 and |u|^2 are then summed over the ranks before the division.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

_BLOCK = 1 << 18  # elements whose squares stay in a processor's cache


@dataclass(frozen=True, eq=False)
class TensorSlice:
    """The elements of one tensor that this rank updates, in fp32."""

    name: str  # of the parameter in the model
    shape: tuple[int, ...]  # of the whole tensor
    group: int  # index of its parameter group in the optimizer
    # start, length: this rank's elements [start, start + length) of the flattened tensor; length may be 0
    start: int
    length: int
    flat: Tensor  # the optimizer's tensor that holds them (a key of `optimizer.state`)
    offset: int  # where they start in the flattened `flat`

    @property
    def weight(self) -> Tensor:
        """fp32 (length,): a view of the weights that the optimizer updates."""
        return self.of(self.flat.detach())

    def of(self, buffer: Tensor) -> Tensor:
        """(length,): a view of the same elements of another buffer, which has the size of `flat`."""
        return buffer.view(-1).narrow(0, self.offset, self.length)


class _Views(NamedTuple):
    """The slices of some parameters that are not empty, each with the index of its parameter, and their weights."""

    slices: list[tuple[int, TensorSlice]]
    weights: list[Tensor]
    # int64 (len(slices),) the number of each slice's tensor in `Lamb.tensor_names`; -1 if it is not scaled
    numbers: Tensor
    tensors: Tensor  # int64 (T,) the numbers of all tensors, including those of which this rank holds nothing


class Lamb(torch.optim.Optimizer):
    """LAMB. Group keys: lr, betas, eps, weight_decay, trust_ratio (False means r = 1).

    State of a parameter: exp_avg (m) and exp_avg_sq (v), fp32 and of the parameter's shape, and step (int).
    Without `attach` it is an ordinary optimizer, and each parameter is one tensor. `step` never waits for the device.

    Attributes:
        tensor_names: the tensors with a trust ratio; numbers until `attach` names them.
        last_trust_ratios: fp32 (len(tensor_names),) the ratios of the last step, on the device of the weights.
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
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps}
        super().__init__(params, defaults | {"weight_decay": weight_decay, "trust_ratio": trust_ratio})
        self.tensor_names: list[str] = []
        self.last_trust_ratios = torch.ones(0)
        self._is_attached = False
        self._slices: dict[Tensor, list[TensorSlice]] = {}
        self._views: dict[tuple[int, ...], _Views] = {}
        self._process_group: dist.ProcessGroup | None = None

    def attach(self, slices: Sequence[TensorSlice], process_group: dist.ProcessGroup | None) -> None:
        """Stores where the elements of each tensor lie on this rank.

        Args:
            slices: one for each tensor of the model, the same tensors in the same order on all ranks; length 0
                where this rank holds no element. `flat` is a tensor of a group's "params" when `step` is called.
            process_group: the ranks among which the tensors are divided; None if each rank holds all elements.
        """
        self._is_attached = True
        self._process_group = process_group
        self._slices, self._views = {}, {}
        for slice_ in slices:
            self._slices.setdefault(slice_.flat, []).append(slice_)
        self.tensor_names = [slice_.name for slice_ in slices if self.param_groups[slice_.group]["trust_ratio"]]
        self.last_trust_ratios = torch.ones(len(self.tensor_names))

    def _add_whole_tensor(self, parameter: Tensor, is_scaled: bool) -> None:
        name = str(len(self._slices))
        self._slices[parameter] = [TensorSlice(name, parameter.shape, 0, 0, parameter.numel(), parameter, 0)]
        if is_scaled:
            self.tensor_names.append(name)

    def _views_of(self, parameters: Sequence[Tensor], is_scaled: bool) -> _Views:
        """The slices of `parameters`; computed at the first call with the same parameters, then reused."""
        key = tuple(map(id, parameters))
        if key not in self._views:
            for parameter in parameters:
                if not self._is_attached and parameter not in self._slices:
                    self._add_whole_tensor(parameter, is_scaled)
            found = [(index, one) for index, parameter in enumerate(parameters) for one in self._slices[parameter]]
            slices = [(index, slice_) for index, slice_ in found if slice_.length]
            device = parameters[0].device
            number_of = {name: number for number, name in enumerate(self.tensor_names)}
            numbers, tensors = (
                torch.tensor([number_of.get(one.name, -1) for _, one in some], dtype=torch.int64, device=device)
                for some in (slices, found)
            )
            self._views[key] = _Views(slices, [slice_.weight for _, slice_ in slices], numbers, tensors)
        return self._views[key]

    def initialise_state(self, parameter: Tensor) -> dict[str, Any]:
        """The state of `parameter`; m = v = 0 before its first step."""
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter, dtype=torch.float32)
            state["exp_avg_sq"] = torch.zeros_like(parameter, dtype=torch.float32)
        return state

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of the parameters that have a gradient. Collective: all ranks step the same groups.

        DeepSpeed calls it for one group (stages 1 and 2) or sub-group (stage 3) at a time and hides the others. Groups
        without a trust ratio need no communication: ALBERT's two groups cost one all-reduce per step.
        """
        scaled: list[tuple[float, _Views, list[Tensor]]] = []  # learning rate, where the weights are, u
        for group in self.param_groups:
            parameters = self._parameters_with_gradient(group)
            if not parameters:
                continue
            views = self._views_of(parameters, group["trust_ratio"])
            whole = self._adam_updates(group, parameters)
            updates = [slice_.of(whole[index]) for index, slice_ in views.slices]  # u
            if group["trust_ratio"]:
                scaled.append((group["lr"], views, updates))
            elif updates:  # empty where a rank holds only padding of a sub-group
                torch._foreach_add_(views.weights, updates, alpha=-group["lr"])
        if scaled:
            self._apply_scaled(scaled)

    def _parameters_with_gradient(self, group: dict[str, Any]) -> list[Tensor]:
        if self._is_attached:
            # ZeRO turns a missing gradient into zeros. Stage 0 must compute the same.
            for parameter in group["params"]:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
        return [parameter for parameter in group["params"] if parameter.grad is not None]

    def _adam_updates(self, group: dict[str, Any], parameters: list[Tensor]) -> list[Tensor]:
        """Updates m and v and returns u of each parameter. Works on whole buffers, including their padding."""
        beta1, beta2 = group["betas"]
        states = [self.initialise_state(parameter) for parameter in parameters]
        for state in states:
            state["step"] += 1
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        m = [state["exp_avg"] for state in states]
        v = [state["exp_avg_sq"] for state in states]
        # m = beta1 * m + (1 - beta1) * g
        torch._foreach_lerp_(m, gradients, 1.0 - beta1)
        # v = beta2 * v + (1 - beta2) * g^2
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, gradients, gradients, 1.0 - beta2)
        # u = m / (sqrt(v) + eps), as 1 / (sqrt(v) + eps) * m in place: one temporary buffer instead of two.
        u = list(torch._foreach_sqrt(v))
        torch._foreach_add_(u, group["eps"])
        torch._foreach_reciprocal_(u)
        torch._foreach_mul_(u, m)
        # u = u + weight_decay * w
        if group["weight_decay"] != 0.0:
            torch._foreach_add_(u, parameters, alpha=group["weight_decay"])
        return u

    def _apply_scaled(self, groups: list[tuple[float, _Views, list[Tensor]]]) -> None:
        """w = w - lr * r * u, with one all-reduce for all `groups`."""
        device = groups[0][1].tensors.device
        squares = torch.zeros(2, len(self.tensor_names), dtype=torch.float64, device=device)  # (2, T) |w|^2, |u|^2
        for _, views, updates in groups:
            if updates:
                squares[:, views.numbers] = squared_norms(views.weights + updates).view(2, -1)
        weight_norm, update_norm = self._sum_over_ranks(squares).sqrt()  # (T,) each
        defined = (weight_norm > 0.0) & (update_norm > 0.0)
        ratios = torch.where(defined, weight_norm / update_norm, 1.0).float()  # (T,)
        if len(self.last_trust_ratios) != len(ratios):  # before `attach`, tensors may come later
            self.last_trust_ratios = torch.ones_like(ratios)
        self.last_trust_ratios = self.last_trust_ratios.to(device)
        for learning_rate, views, updates in groups:
            if updates:
                torch._foreach_mul_(updates, list(ratios[views.numbers].unbind()))
                torch._foreach_add_(views.weights, updates, alpha=-learning_rate)
            self.last_trust_ratios[views.tensors] = ratios[views.tensors]

    def _sum_over_ranks(self, squares: Tensor) -> Tensor:
        if self._process_group is not None and dist.get_world_size(self._process_group) > 1:
            dist.all_reduce(squares, group=self._process_group)
        return squares


def squared_norms(tensors: Sequence[Tensor]) -> Tensor:
    """float64 (len(tensors),): the sum of squares of each tensor.

    Accurate to 1e-6, independent of how the tensor is partitioned.
    """
    if tensors[0].device.type != "cpu":
        return torch.stack(torch._foreach_norm(list(tensors))).double().square()
    # On a CPU, torch's norm accumulates in a few fp32 numbers: 0.5 % off for 67 million elements. Its sum is accurate.
    parts = (torch.stack([block.square().sum() for block in one.reshape(-1).split(_BLOCK)]) for one in tensors)
    return torch.stack([of_tensor.double().sum() for of_tensor in parts])
