"""The part of DeepSpeed's engine that the project uses outside of `pipeline.engine`."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

KINDS = ("weight", "exp_avg", "exp_avg_sq")
"""What an engine keeps of each element in fp32: w, m and v. Adam and LAMB both use the last two names."""


class Engine(Protocol):
    """A model in training: DeepSpeed's engine, reduced to what other packages may use.

    `pipeline.engine.build.initialise` makes one. `pipeline.engine.step` makes its steps, and
    `pipeline.engine.state` reads and sets its state. Only `pipeline.engine` uses what is not listed here. All ranks
    must call the methods marked "collective" together.
    """

    @property
    def module(self) -> nn.Module:
        """The model. At ZeRO stage 3 its parameters are empty outside of forward and backward."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the inputs of the model must be."""
        ...

    @property
    def global_steps(self) -> int:
        """Optimizer steps made, including those whose update was skipped."""
        ...

    @property
    def skipped_steps(self) -> int:
        """Steps whose update was skipped because gradients were not finite."""
        ...

    def __call__(self, **inputs: Tensor) -> Any:
        """Runs the model's forward pass. Collective at ZeRO stage 3."""
        ...

    def backward(self, loss: Tensor) -> Any:
        """Adds the gradients of one micro-batch; `loss` is a scalar (). Collective."""
        ...

    def train(self) -> Any:
        """Puts the model into training mode."""
        ...

    def eval(self) -> Any:
        """Puts the model into evaluation mode."""
        ...


class Forward(Protocol):
    """A model or an engine, as prediction uses it: evaluation mode and a forward pass."""

    def eval(self) -> Any:
        """Puts the model into evaluation mode."""
        ...

    def __call__(self, **inputs: Tensor) -> Any:
        """Runs the model's forward pass."""
        ...
