"""Runs the forward and backward pass of a micro-step as CUDA graphs (`--cuda-graphs`).

Two graphs, one of the forward and one of the backward pass, serve every micro-batch of the same shapes: its tensors are
copied into the graphs' own. What a graph holds is the model's work only. The hooks of ZeRO run outside of it, after the
backward pass, for each parameter's gradient, so stages 0 to 2 work. A graph of the hooks would be wrong: they count
gradients and fill buckets in Python, which a replay does not repeat, and DeepSpeed allocates the buckets anew in each
step (runtime/zero/stage_1_and_2.py, `reduce_independent_p_g_buckets_and_remove_grads`, `setup_buckets`). For the same
reason `overlap_comm` overlaps nothing with a graph.

Where a capture fails, the same two passes run without graphs. ZeRO then sees the gradients in the same order, so ranks
may differ in this.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

WARM_UPS = 3
"""Passes before a capture. They compile, choose kernels and allocate what a capture must not."""
MAX_GRAPHS = 16
"""Shapes of micro-batches that get graphs; further ones run without."""

Forward = Callable[..., Any]
"""A model's forward pass: tensors by name to a NamedTuple of tensors and None."""
Work = Callable[[], Sequence[Tensor]]
"""Computes tensors."""


class Recorder(Protocol):
    """Records work on tensors that stay where they are, so that it can be repeated."""

    def warm_up(self) -> AbstractContextManager[Any]:
        """Where work runs before it is recorded."""
        ...

    def record(self, work: Work) -> tuple[Sequence[Tensor], Callable[[], None]]:
        """The tensors that hold the results, and what repeats the work into them. RuntimeError: it cannot."""
        ...


class CudaRecorder:
    """Captures CUDA graphs. All share one pool of memory, because none is in use while another one is."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        """A stream beside the current one, as torch.cuda.graph demands."""
        side, current = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            yield
        current.wait_stream(side)

    def record(self, work: Work) -> tuple[Sequence[Tensor], Callable[[], None]]:
        """See `Recorder.record`. Threads that copy a checkpoint or watch NCCL may go on meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            results = work()
        return results, graph.replay


class EagerRecorder:
    """Fallback without graphs: runs forward and backward eagerly again."""

    def warm_up(self) -> AbstractContextManager[Any]:
        """Nothing special."""
        return nullcontext()

    def record(self, work: Work) -> tuple[Sequence[Tensor], Callable[[], None]]:
        """See `Recorder.record`. The results are there after the first repetition."""
        results: list[Tensor] = []

        def repeat() -> None:
            results[:] = work()

        return results, repeat


class MicroStep:
    """The forward and backward pass of a model for one set of shapes.

    Args:
        forward: of the model. Only scalars () of its output get a gradient.
        parameters: of the model.
        inputs: a micro-batch, of which shapes and dtypes count.
        recorder: how the passes are repeated.
    """

    def __init__(
        self,
        forward: Forward,
        parameters: Sequence[nn.Parameter],
        inputs: dict[str, Any],
        recorder: Recorder,
    ) -> None:
        self._forward = forward
        self._places = [(parameter, parameter.data_ptr()) for parameter in parameters]
        self._inputs = {name: one.clone() if isinstance(one, Tensor) else one for name, one in inputs.items()}
        self._trained = [parameter for parameter in parameters if parameter.requires_grad]
        self.number = 0  # of forward passes
        self._sums: list[Tensor] = []
        self._gradients_of_sums: list[Tensor] = []
        first = next(one for one in self._inputs.values() if isinstance(one, Tensor))
        # The run's random numbers must not depend on the warm-up.
        with torch.random.fork_rng(devices=[first.device] if first.device.type == "cuda" else []):
            with recorder.warm_up():
                for _ in range(WARM_UPS):
                    self._run_forward()
                    self._gradients_of_sums = [torch.zeros_like(one) for one in self._sums]  # () each
                    found = torch.autograd.grad(
                        self._sums, self._trained, self._gradients_of_sums, allow_unused=True
                    )  # as the parameters
                # ZeRO counts the gradients that it waits for, so a parameter without one must not take part.
                self.used = [one for one, gradient in zip(self._trained, found) if gradient is not None]
                del found
            self._outputs, self._repeat_forward = recorder.record(self._run_forward)
            self._gradients, self._repeat_backward = recorder.record(self._run_backward)
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

    def __call__(self, inputs: dict[str, Any]) -> Any:
        """The model's output for `inputs`, valid until the next call. Scalars with a gradient stay valid."""
        for name, one in inputs.items():
            if isinstance(one, Tensor):
                self._inputs[name].copy_(one, non_blocking=True)
        sums = iter(_Passes.apply(self, *self.used))
        tensors = iter([next(sums) if is_sum else one for one, is_sum in zip(self._outputs, self._is_sum)])
        return self._kind._make([next(tensors) if is_set else None for is_set in self._is_set])

    def forward(self) -> list[Tensor]:
        """Runs the forward pass and returns the scalars () that get a gradient."""
        self._repeat_forward()
        self.number += 1
        return [one.clone() for one, is_sum in zip(self._outputs, self._is_sum) if is_sum]

    def backward(self, number: int, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of `used` after forward pass `number`, given those of the scalars.

        They are copies: the first gradient of a step becomes `.grad` itself, and the next pass writes over ours.
        """
        if number != self.number:
            raise RuntimeError("--cuda-graphs: another forward pass ran before this one's backward pass")
        for place, gradient in zip(self._gradients_of_sums, gradients):
            place.copy_(gradient)
        self._repeat_backward()
        return [one.clone() for one in self._gradients]


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
    """Takes the place of a model's `forward`. Training uses a `MicroStep` for each set of shapes.

    Evaluation calls the model as it is.
    """

    def __init__(self, model: nn.Module, recorder: Recorder) -> None:
        self._model, self._forward, self._recorder = model, model.forward, recorder
        self._steps: dict[Any, MicroStep] = {}

    def __call__(self, **inputs: Any) -> Any:
        """The model's output."""
        if not (self._model.training and torch.is_grad_enabled()):
            return self._forward(**inputs)
        shapes = tuple(
            (name, one.shape, one.dtype) if isinstance(one, Tensor) else (name, one) for name, one in inputs.items()
        )
        step = self._steps.get(shapes)
        if step is None or step.has_moved():
            step = self._steps[shapes] = self._make(inputs)
        return step(inputs)

    def _make(self, inputs: dict[str, Any]) -> MicroStep:
        parameters = list(self._model.parameters())
        if len(self._steps) < MAX_GRAPHS:
            try:
                return MicroStep(self._forward, parameters, inputs, self._recorder)
            except RuntimeError as error:
                reason = str(error).strip().partition("\n")[0]
                warnings.warn(f"--cuda-graphs: no graph, and training goes on without: {reason}", stacklevel=2)
                self._recorder = EagerRecorder()
        return MicroStep(self._forward, parameters, inputs, EagerRecorder())


def install(model: nn.Module, recorder: Recorder | None = None) -> None:
    """Makes `model` train by graphs. A DeepSpeed engine of the model must already exist: it moves the parameters."""
    model.forward = GraphedForward(model, recorder or CudaRecorder())
