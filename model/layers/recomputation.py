"""Computes the outputs of GELU and LayerNorm again in the backward pass instead of keeping them.

Both are cheap functions of a tensor that autograd keeps anyway, to differentiate them. A matrix product that follows
keeps their output as well. This is selective recomputation in the sense of arXiv 2205.05198: it repeats no product.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class PointwiseRecomputation:
    """Makes autograd keep, in place of an output of a GELU or LayerNorm in `module`, how to compute it again."""

    def __init__(self, module: nn.Module) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], Callable[[], Tensor]]] = {}  # by storage
        for part in module.modules():
            if isinstance(part, (nn.GELU, nn.LayerNorm)):
                part.register_forward_hook(self._note)

    @contextmanager
    def active(self) -> Iterator[None]:
        """A forward pass inside keeps less."""
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
                yield
        finally:
            self._known.clear()

    def _note(self, part: nn.Module, arguments: tuple[Tensor], output: Tensor) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            inputs = arguments[0].detach()
            # As long as the output lives, no other tensor has its storage.
            self._known[output.untyped_storage()._cdata] = weakref.ref(output), lambda: part.forward(inputs)

    def _pack(self, tensor: Tensor) -> Any:
        output, compute = self._known.get(tensor.untyped_storage()._cdata, (lambda: None, None))
        alive = output()
        if compute is None or alive is None or not alive.is_contiguous() or not tensor.is_contiguous():
            return tensor
        shape = tensor.shape  # a product may keep (T, K) of (B, S, K)
        return (lambda: compute().view(shape)) if tensor.numel() == alive.numel() else tensor


def _unpack(kept: Any) -> Tensor:
    if isinstance(kept, Tensor):
        return kept
    with torch.no_grad():
        return kept()
