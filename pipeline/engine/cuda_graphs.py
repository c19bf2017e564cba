"""Runs the forward and backward pass of a micro-step as CUDA graphs (`--cuda-graphs`).

Two graphs, one of the forward and one of the backward pass, serve every micro-batch: its tensors, which always have the
same shapes, are copied into the graphs' own. What a graph holds is the model's work only. The hooks of ZeRO run outside
of it, after the backward pass, for each parameter's gradient, so stages 0 to 2 work. A graph of the hooks would be
wrong: they count gradients and fill buckets in Python, which a replay does not repeat, and DeepSpeed allocates the
buckets anew in each step (runtime/zero/stage_1_and_2.py, `reduce_independent_p_g_buckets_and_remove_grads`,
`setup_buckets`). For the same reason `overlap_comm` overlaps nothing with a graph.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from common.errors import one_line

WARM_UPS = 3
"""Passes before a capture. They compile, choose kernels and allocate what a capture must not."""

Forward = Callable[..., Any]
"""A model's forward pass: tensors by name to a NamedTuple of tensors and None."""
Work = Callable[[], Sequence[Tensor]]
"""Computes tensors."""
Capture = Callable[[Work], tuple[Sequence[Tensor], Callable[[], None]]]
"""Records work on tensors that stay where they are. Returns the tensors that hold the results, and what repeats the
work into them. RuntimeError: it cannot."""


def make_capture() -> Capture:
    """Captures CUDA graphs. Both passes share one pool of memory, because the backward pass reads the activations."""
    pool = torch.cuda.graph_pool_handle()

    def capture(work: Work) -> tuple[Sequence[Tensor], Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        # Threads that copy a checkpoint or watch NCCL may go on meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            results = work()
        return results, graph.replay

    return capture


def run_without_graph(work: Work) -> tuple[Sequence[Tensor], Callable[[], None]]:
    """Takes the place of a capture that fails: repeating is doing the work again.

    ZeRO gets the gradients in the same order as from a graph, so ranks with and without graphs reduce the same buckets.
    """
    results = list(work())

    def repeat() -> None:
        results[:] = work()

    return results, repeat


@contextmanager
def _side_stream(device: torch.device) -> Iterator[None]:
    """A stream beside the current one, where torch.cuda.graph demands the warm-up."""
    if device.type != "cuda":
        yield
        return
    side, current = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


class MicroStep:
    """The forward and backward pass of a model for one set of shapes.

    Args:
        forward: of the model. Only scalars () of its output get a gradient.
        parameters: of the model.
        inputs: a micro-batch, of which shapes and dtypes count.
        capture: how the passes are repeated.
    """

    def __init__(
        self, forward: Forward, parameters: Sequence[nn.Parameter], inputs: dict[str, Tensor], capture: Capture
    ) -> None:
        self._forward = forward
        self._places = [(parameter, parameter.data_ptr()) for parameter in parameters]
        self._inputs = {name: one.clone() for name, one in inputs.items()}
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        self.number = 0  # of forward passes
        self._sums: list[Tensor] = []
        self._gradients_of_sums: list[Tensor] = []
        device = next(iter(inputs.values())).device
        is_gpu = device.type == "cuda"
        # The run's random numbers must not depend on the warm-up.
        with torch.random.fork_rng(devices=[device] if is_gpu else []):
            with _side_stream(device):
                for _ in range(WARM_UPS):
                    self._run_forward()
                    self._gradients_of_sums = [torch.zeros_like(one) for one in self._sums]  # () each
                    found = torch.autograd.grad(self._sums, trained, self._gradients_of_sums, allow_unused=True)
            # ZeRO counts the gradients that it waits for, so a parameter without one must not take part.
            self.used = [one for one, gradient in zip(trained, found) if gradient is not None]
            # The graphs have a pool of their own, which cannot use what the warm-up leaves in the common one.
            del found
            self._sums = []
            if is_gpu:
                torch.cuda.empty_cache()
            self._outputs, self._repeat_forward = capture(self._run_forward)
            self._gradients, self._repeat_backward = capture(self._run_backward)
        # They hold nodes of autograd that belong to the stream of the capture, and ZeRO's hooks would run there.
        self._sums = []

    def _run_forward(self) -> list[Tensor]:
        with torch.enable_grad():
            output = self._forward(**self._inputs)
        self._kind, self._is_set = type(output), [one is not None for one in output]
        tensors = [one for one in output if one is not None]
        self._is_sum = [one.requires_grad and one.dim() == 0 for one in tensors]
        self._sums = [one for one, is_sum in zip(tensors, self._is_sum) if is_sum]
        return [one.detach() for one in tensors]

    def _run_backward(self) -> Sequence[Tensor]:
        return torch.autograd.grad(self._sums, self.used, self._gradients_of_sums)

    def has_moved(self) -> bool:
        """Whether a parameter has another place in memory than the graphs have."""
        return any(parameter.data_ptr() != place for parameter, place in self._places)

    def __call__(self, inputs: dict[str, Tensor]) -> Any:
        """The model's output for `inputs`, valid until the next call. Scalars with a gradient stay valid."""
        for name, one in inputs.items():
            self._inputs[name].copy_(one, non_blocking=True)
        sums = iter(_Passes.apply(self, *self.used))
        tensors = iter([next(sums) if is_sum else one for one, is_sum in zip(self._outputs, self._is_sum)])
        return self._kind._make([next(tensors) if is_set else None for is_set in self._is_set])

    def forward(self) -> list[Tensor]:
        """Runs the forward pass and returns the scalars () that get a gradient."""
        self._repeat_forward()
        self.number += 1
        return [one.clone() for one, is_sum in zip(self._outputs, self._is_sum) if is_sum]

    def backward(self, number: int, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """The gradients of `used` after forward pass `number`, given those of the scalars.

        The next pass writes over them. autograd copies them into `.grad`, because they are referred to here.
        """
        if number != self.number:
            raise RuntimeError("--cuda-graphs: another forward pass ran before this one's backward pass")
        for place, gradient in zip(self._gradients_of_sums, gradients):
            place.copy_(gradient)
        self._repeat_backward()
        return self._gradients


class _Passes(torch.autograd.Function):
    """Both passes of a `MicroStep` as one node of autograd, whose gradients go to the parameters."""

    @staticmethod
    def forward(ctx: Any, step: MicroStep, *parameters: Tensor) -> tuple[Tensor, ...]:
        sums = tuple(step.forward())
        ctx.step, ctx.number = step, step.number
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *ctx.step.backward(ctx.number, gradients))


class GraphedForward:
    """Takes the place of a model's `forward`. Training uses a `MicroStep`; evaluation calls the model as it is."""

    def __init__(self, model: nn.Module, capture: Capture) -> None:
        self._model, self._forward, self._capture = model, model.forward, capture
        self._step: MicroStep | None = None
        self._shapes: Any = None

    def __call__(self, **inputs: Tensor) -> Any:
        """The model's output."""
        if not (self._model.training and torch.is_grad_enabled()):
            return self._forward(**inputs)
        shapes = [(name, one.shape, one.dtype) for name, one in inputs.items()]
        if self._step is None or self._shapes != shapes or self._step.has_moved():
            self._step = None  # frees the memory of its graphs for the next
            self._step, self._shapes = self._make_step(inputs), shapes
        return self._step(inputs)

    def _make_step(self, inputs: dict[str, Tensor]) -> MicroStep:
        try:
            return MicroStep(self._forward, list(self._model.parameters()), inputs, self._capture)
        except RuntimeError as error:
            warnings.warn(f"--cuda-graphs: no graph, and training goes on without: {one_line(error)}", stacklevel=3)
        self._capture = run_without_graph  # here the traceback no longer keeps the memory of the failed capture
        return MicroStep(self._forward, list(self._model.parameters()), inputs, self._capture)


def install(model: nn.Module, capture: Capture | None = None) -> None:
    """Makes `model` train by graphs. A DeepSpeed engine of the model must already exist: it moves the parameters.

    Args:
        capture: how work is recorded; None: by CUDA graphs.
    """
    model.forward = GraphedForward(model, capture or make_capture())
