"""Small models and batches, and observations of a forward pass, for the tests of the model."""

import gc
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import settings
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from model import AlbertConfig

FIRST_ORDINARY_ID = 5

few_examples = settings(deadline=None, derandomize=True, max_examples=12)
"""Settings of hypothesis: the same few examples in every run."""


def tiny_config(**overrides: Any) -> AlbertConfig:
    """Returns a configuration of three layers of width 24 without dropout."""
    sizes = {"vocab_size": 50, "embedding_size": 8, "hidden_size": 24, "intermediate_size": 32}
    sizes |= {"num_hidden_layers": 3, "num_attention_heads": 3, "max_position_embeddings": 40}
    return AlbertConfig(**{**sizes, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **overrides})


def randomise(model: nn.Module, seed: int, scale: float = 0.3) -> None:
    """Gives every parameter, including biases and LayerNorms, random values, so that mistakes change results."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


def random_ids(seed: int, *shape: int, vocab_size: int = 50) -> Tensor:
    """Returns random ids of ordinary tokens, int64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(FIRST_ORDINARY_ID, vocab_size, shape, generator=generator)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Returns the gradient of every parameter. A parameter without a gradient fails the test."""
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient is not None for gradient in found.values()), "a parameter has no gradient"
    return {name: gradient.clone() for name, gradient in found.items() if gradient is not None}


class Synchronisations(TorchDispatchMode):
    """Collects operations that synchronise the host with a device, or whose shapes depend on values, or notes them."""

    def __init__(self, note: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.found: list[str] = []
        self.note = note or self.found.append

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2"}:
            self.note(name)
        return func(*args, **(kwargs or {}))


def kept_bytes(model: nn.Module, forward: Callable[[], Tensor]) -> int:
    """Returns the bytes of storages, without parameters, that stay alive after `forward()` for its backward pass.

    Saved by autograd, or held by a checkpoint, which autograd's hooks do not see. Works without memory ("meta").
    """
    gc.collect()
    older = {id(thing) for thing in gc.get_objects() if type(thing) is Tensor}
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = forward()
    kept += [thing for thing in gc.get_objects() if type(thing) is Tensor and id(thing) not in older]
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in [*kept, loss]}
    return sum(storage.nbytes() for place, storage in storages.items() if place not in own)
