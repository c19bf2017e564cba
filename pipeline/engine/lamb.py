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

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, overload

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.engine.slice_map import SliceMap, TensorSlice, Views

_BLOCK = 1 << 18  # elements whose squares stay in a processor's cache


class _ScaledGroup(NamedTuple):
    """A parameter group with trust ratios in one step: its learning rate, its parameters and their u."""

    learning_rate: float
    parameters: list[Tensor]
    updates: list[Tensor]


class Lamb(torch.optim.Optimizer):
    """LAMB. Group keys: lr, betas, eps, weight_decay, trust_ratio (False means r = 1).

    State of a parameter: exp_avg (m) and exp_avg_sq (v), fp32 and of the parameter's shape, and step (int).
    Without `attach` it is an ordinary optimizer, and each parameter is one tensor. `step` never waits for the device.

    Attributes:
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
        self._slices = SliceMap()
        self._process_group: dist.ProcessGroup | None = None
        self._communication_device: torch.device | None = None
        self.last_trust_ratios = torch.ones(0)

    @property
    def tensor_names(self) -> list[str]:
        """The tensors with a trust ratio, in the order of `last_trust_ratios`; numbers until `attach` names them."""
        return self._slices.tensor_names

    def attach(
        self,
        locations: Sequence[TensorSlice],
        process_group: dist.ProcessGroup | None,
        communication_device: torch.device | None = None,
    ) -> None:
        """Stores where the elements of each tensor lie on this rank.

        Args:
            locations: one for each tensor of the model, the same tensors in the same order on all ranks; length 0
                where this rank holds no element. `flat` is a tensor of a group's "params" when `step` is called.
            process_group: the ranks among which the tensors are divided; None if each rank holds all elements.
            communication_device: a device on which `process_group` can sum; None: the weights' own. CPU offload needs
                another one.
        """
        self._slices.attach(locations, lambda group: bool(self.param_groups[group]["trust_ratio"]))
        self._process_group = process_group
        self._communication_device = communication_device
        self.last_trust_ratios = torch.ones(len(self.tensor_names))

    def initialise_state(self, parameter: Tensor) -> dict[str, Any]:
        """The state of `parameter`; m = v = 0 before its first step."""
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
        """One update of the parameters that have a gradient. Collective: all ranks step the same groups.

        DeepSpeed calls it for one group (stages 1 and 2) or sub-group (stage 3) at a time and hides the others. Groups
        without a trust ratio need no communication: ALBERT's two groups cost one all-reduce per step.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scaled: list[_ScaledGroup] = []
        for group in self.param_groups:
            parameters = self._parameters_with_gradient(group)
            if not parameters:
                continue
            updates = self._adam_updates(group, parameters)  # u
            if group["trust_ratio"]:
                scaled.append(_ScaledGroup(group["lr"], parameters, updates))
            else:
                self._apply_unscaled(group["lr"], parameters, updates)
        if scaled:
            self._apply_scaled(scaled)
        return loss

    def _parameters_with_gradient(self, group: dict[str, Any]) -> list[Tensor]:
        if self._slices.is_attached:
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

    def _apply_unscaled(self, learning_rate: float, parameters: list[Tensor], updates: list[Tensor]) -> None:
        """w = w - lr * u."""
        views = self._slices.views(parameters, scaled=False)
        if views.weights:  # empty where a rank holds only padding of a sub-group
            torch._foreach_add_(views.weights, views.of(updates), alpha=-learning_rate)

    def _apply_scaled(self, groups: list[_ScaledGroup]) -> None:
        """w = w - lr * r * u, with one all-reduce for all `groups`."""
        views = self._slices.views([parameter for group in groups for parameter in group.parameters], scaled=True)
        updates = views.of([update for group in groups for update in group.updates])
        ratios = self._trust_ratios(views, updates)  # fp32 (T,)
        if views.weights:
            torch._foreach_mul_(updates, list(ratios[views.slots].unbind()))
            rates = [group.learning_rate for group in groups for _ in group.parameters]
            if len(set(rates)) == 1:
                torch._foreach_add_(views.weights, updates, alpha=-rates[0])
            else:
                torch._foreach_mul_(updates, [-rates[parameter] for parameter, _ in views.slices])
                torch._foreach_add_(views.weights, updates)
        self._keep_trust_ratios(views, ratios)

    def _trust_ratios(self, views: Views, updates: list[Tensor]) -> Tensor:
        """fp32 (T,): r = |w| / |u| of each tensor of `views` over all ranks, 1 where either norm is 0."""
        squares = torch.zeros(2, len(views.tensors), dtype=torch.float64, device=views.tensors.device)  # |w|^2, |u|^2
        if views.weights:
            squares[:, views.slots] = squared_norms(views.weights + updates).view(2, -1)
        weight_norm, update_norm = self._sum_over_ranks(squares).sqrt()
        defined = (weight_norm > 0.0) & (update_norm > 0.0)
        return torch.where(defined, weight_norm / update_norm, 1.0).float()

    def _sum_over_ranks(self, squares: Tensor) -> Tensor:
        if self._process_group is None or dist.get_world_size(self._process_group) == 1:
            return squares
        # Without CPU offload `to` copies nothing.
        summed = squares if self._communication_device is None else squares.to(self._communication_device)
        dist.all_reduce(summed, group=self._process_group)
        return summed.to(squares.device)

    def _keep_trust_ratios(self, views: Views, ratios: Tensor) -> None:
        kept = self.last_trust_ratios
        if len(kept) != len(self.tensor_names):
            kept = torch.ones(len(self.tensor_names))
        self.last_trust_ratios = kept.to(ratios.device)
        self.last_trust_ratios[views.tensors] = ratios


def squared_norms(tensors: Sequence[Tensor]) -> Tensor:
    """float64 (len(tensors),): the sum of squares of each tensor.

    Accurate to 1e-6, independent of how the tensor is partitioned.
    """
    if tensors[0].device.type != "cpu":
        return torch.stack(torch._foreach_norm(list(tensors))).double().square()
    # On a CPU, torch's norm accumulates in a few fp32 numbers: 0.5 % off for 67 million elements. Its sum is accurate.
    return torch.stack([_sum_of_squares(tensor) for tensor in tensors])


def _sum_of_squares(tensor: Tensor) -> Tensor:
    """float64 ()."""
    return torch.stack([block.square().sum() for block in tensor.reshape(-1).split(_BLOCK)]).double().sum()
