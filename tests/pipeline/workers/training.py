"""A small model with one shared layer: trained by DeepSpeed, and by a reference in one process."""

import copy
import functools
import gc
import math
from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.engine import engine_state, optimizers, zero_layout
from pipeline.engine.optimizers import parameter_groups

BATCH = 12  # rows of a global batch: divides into 1, 2, 3 and 4 ranks
LR = 0.01
CLIP = 0.5


class SharedModel(nn.Module):
    """Odd sizes, one layer used four times, a tied output embedding, and a tensor smaller than the world."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(29, 7)
            self.projection = nn.Linear(7, 11)
            self.layer = nn.Linear(11, 11)
            self.norm = nn.LayerNorm(11)
            self.back = nn.Linear(11, 7, bias=False)
            self.scale = nn.Parameter(torch.ones(1))
            self.output_bias = nn.Parameter(torch.zeros(29))
            self.unused = nn.Linear(3, 1)  # as the sentence head when there is no sentence loss
            for parameter in self.parameters():
                parameter.data.add_(torch.randn(parameter.shape) * 0.1)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        hidden = self.projection(self.embedding(tokens))  # (B, S, 11)
        for _ in range(4):
            hidden = self.norm(hidden + F.gelu(self.layer(hidden), approximate="tanh"))
        logits = self.scale * F.linear(self.back(hidden), self.embedding.weight) + self.output_bias
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def batch(step: int) -> tuple[Tensor, Tensor]:
    """tokens and labels of a global batch, int64 (BATCH, 5)."""
    generator = torch.Generator().manual_seed(1000 + step)
    tokens = torch.randint(0, 29, (BATCH, 5), generator=generator)
    return tokens, (tokens * 3 + 1) % 29


def learning_rate(step: int) -> float:
    """A different learning rate for each step."""
    return LR * (1 - step / 100)


def config(stage: int, precision: str, world: int, accumulation: int = 1, **extra: Any) -> dict[str, Any]:
    """A DeepSpeed JSON with buckets far smaller than the model, and sub-groups of which a rank may hold nothing."""
    settings: dict[str, Any] = {
        "train_batch_size": BATCH,
        "gradient_accumulation_steps": accumulation,
        "train_micro_batch_size_per_gpu": BATCH // world // accumulation,
        "gradient_clipping": CLIP,
        "steps_per_print": None,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": 100,
            "allgather_bucket_size": 100,
            "stage3_prefetch_bucket_size": 50,
            "stage3_param_persistence_threshold": 12,
            "sub_group_size": 4,
        },
    }
    if precision != "fp32":
        settings[precision] = {"enabled": True}
    for key, value in extra.items():
        if isinstance(value, dict):
            settings.setdefault(key, {}).update(value)
        else:
            settings[key] = value
    return settings


def claim_fp16() -> None:
    """Makes DeepSpeed accept fp16 on this processor. It rejects fp16 there, but torch supports it."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True


def groups(model: nn.Module) -> list[dict[str, Any]]:
    """LAMB's two groups, the first split in two with settings of their own, the learning rate among them."""
    scaled, plain = ({**group, "rate_share": 1.0} for group in parameter_groups(model, weight_decay=0.02))
    half = len(scaled["params"]) // 2
    others = {"weight_decay": 0.1, "betas": (0.8, 0.99), "rate_share": 0.5}
    return [
        {**scaled, "params": scaled["params"][:half]},
        plain,
        {**scaled, "params": scaled["params"][half:], **others},
    ]


def make_engine(settings: dict[str, Any], attach: bool = True, seed: int = 0) -> Any:
    """A DeepSpeed engine with the optimizer that the settings name; with LAMB if they name none."""
    import deepspeed

    model = SharedModel(seed)
    lamb = {"optimizer": {"type": "Lamb", "params": {"lr": LR}}}
    own = optimizers.make_optimizer(lamb | settings, groups(model))
    mine = {"model_parameters": groups(model)} if own is None else {"optimizer": own}
    engine, *_ = deepspeed.initialize(model=model, config=copy.deepcopy(settings), **mine)
    if attach:
        zero_layout.attach(engine)
    return engine


def train(engine: Any, first: int, last: int, factor: float = 1.0) -> list[float]:
    """Steps [first, last) and the losses of this rank's micro-batches. `factor` multiplies the last loss of a step."""
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    accumulation = engine.gradient_accumulation_steps()
    losses = []
    for step in range(first, last):
        for group in engine.optimizer.param_groups:
            group["lr"] = learning_rate(step) * group["rate_share"]
        tokens, labels = batch(step)
        for part in range(accumulation):
            mine = slice(rank + world * part, None, world * accumulation)
            loss = engine(tokens[mine], labels[mine])
            engine.backward(loss * factor if part == accumulation - 1 else loss)
            engine.step()
            losses.append(loss.item())
    return losses


def close(engine: Any) -> None:
    """Removes the engine's hooks, which would affect the next engine."""
    engine.destroy()
    gc.collect()


def full(engine: Any, kind: str = "weight") -> dict[str, Tensor]:
    """The whole fp32 tensors of a kind (`engine_state.KINDS`) by name, on all ranks."""
    whole = {}
    for part, values in engine_state.tensor_states(engine, zero_layout.owned_slices(engine)):
        tensor = torch.zeros(part.shape)
        tensor.view(-1)[part.start : part.start + part.length] = values[kind]
        torch.distributed.all_reduce(tensor)
        whole[part.name] = tensor
    return whole


def model_weights(engine: Any) -> dict[str, Tensor]:
    """The weights that the model computes with, whole, as fp32."""
    import deepspeed

    parameters = dict(engine.module.named_parameters())
    with deepspeed.zero.GatheredParameters(list(parameters.values()), enabled=zero_layout.stage(engine) == 3):
        return {name: parameter.detach().float().clone() for name, parameter in parameters.items()}


@functools.cache
def reference(
    steps: int,
    parts: int = 1,
    dtype: torch.dtype = torch.float32,
    clip: float = CLIP,
    seed: int = 0,
    rounded: bool = False,
    skipped: Collection[int] = (),
) -> dict[str, dict[str, Tensor]]:
    """LAMB by the recipe, written out tensor by tensor in float64: weight, exp_avg and exp_avg_sq after `steps`.

    With a 16-bit `dtype` the gradients are those of a model in that precision, one for each of `parts` parts of
    the batch, and the weights start from the rounded ones, as DeepSpeed's do.

    Args:
        rounded: the weights start from those rounded to fp16, and the rest is float64.
        skipped: steps whose update is left out.
    """
    model = SharedModel(seed).half().float() if rounded else SharedModel(seed).to(dtype)
    model = model.double() if dtype == torch.float32 else model
    weights = {name: parameter.detach().double().clone() for name, parameter in model.named_parameters()}
    settings = {id(parameter): group for group in groups(model) for parameter in group["params"]}
    by_name = {name: settings[id(parameter)] for name, parameter in model.named_parameters()}
    m = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    v = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for step in (step for step in range(steps) if step not in skipped):
        for name, parameter in model.named_parameters():
            parameter.data.copy_(weights[name])
        gradients = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        tokens, labels = batch(step)
        for part in range(parts):
            model.zero_grad()
            model(tokens[part::parts], labels[part::parts]).backward()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    gradients[name] += parameter.grad.double() / parts
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients.values()))
        for name, gradient in gradients.items():
            g = gradient * (min(1.0, clip / norm) if clip else 1.0)
            beta1, beta2 = by_name[name].get("betas", (0.9, 0.999))
            m[name] = beta1 * m[name] + (1 - beta1) * g
            v[name] = beta2 * v[name] + (1 - beta2) * g * g
            u = m[name] / (v[name].sqrt() + 1e-6) + by_name[name]["weight_decay"] * weights[name]
            ratio = 1.0
            if by_name[name]["trust_ratio"] and weights[name].norm() > 0 and u.norm() > 0:
                ratio = float(weights[name].norm() / u.norm())
            weights[name] = weights[name] - learning_rate(step) * by_name[name]["rate_share"] * ratio * u
    return {"weight": weights, "exp_avg": m, "exp_avg_sq": v}


def difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The largest relative L2 distance of any tensor. A tensor that should be 0 must be."""
    assert found.keys() == wanted.keys()
    distances = []
    for name, tensor in wanted.items():
        distance = (found[name].double() - tensor.double()).norm().item()
        distances.append(distance / tensor.double().norm().item() if distance else 0.0)
    return max(distances)
