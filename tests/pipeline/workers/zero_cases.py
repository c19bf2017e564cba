"""What an engine's buffers hold, and what DeepSpeed does wrong without our remedies."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipeline import zero
from pipeline.lamb import Lamb
from tests.pipeline.workers import training
from tests.pipeline.workers.lamb_cases import claim_fp16


def coded(number: int, elements: int) -> Tensor:
    """Another value for each element of each tensor; all are exact in bf16."""
    return ((torch.arange(elements) * 7 + number * 31) % 251).float()


def write_coded(settings: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Writes a code into the fp32 weights of each segment; what the model then has, and what it should have."""
    engine = training.make_engine(settings, attach=False)
    wanted = {}
    for number, segment in enumerate(zero.segments(engine)):
        code = coded(number, math.prod(segment.shape))
        segment.master.copy_(code[segment.start : segment.start + segment.length])
        wanted[segment.name] = code.view(segment.shape)
    zero.refresh_model_weights(engine)
    found = training.model_weights(engine)
    training.close(engine)
    return found, wanted


def write_all_coded(cases: list[tuple[int, str, dict[str, Any]]]) -> list[Any]:
    """(found, wanted) of each (stage, precision, extra settings)."""
    claim_fp16()
    world = torch.distributed.get_world_size()
    return [write_coded(training.config(stage, precision, world, **extra)) for stage, precision, extra in cases]


class Reentrant(nn.Module):
    """A layer used three times, with the kind of checkpointing that `refuse_what_is_wrong` refuses."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(11, 11)
        self.head = nn.Linear(11, 1)
        self.use_reentrant = use_reentrant

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden.requires_grad_()
        for _ in range(3):
            hidden = checkpoint(lambda x: torch.tanh(self.layer(x)) + x, hidden, use_reentrant=self.use_reentrant)
        return self.head(hidden).square().mean()


def gradients(use_reentrant: bool, stage: int) -> list[Tensor] | str:
    """m after one step, which is a tenth of the gradient, or the error that training ends with."""
    import deepspeed

    settings = training.config(stage, "fp32", torch.distributed.get_world_size(), gradient_clipping=0.0)
    model = Reentrant(use_reentrant)
    engine, *_ = deepspeed.initialize(model=model, optimizer=Lamb(model.parameters(), lr=0.0), config=settings)
    zero.attach(engine)
    generator = torch.Generator().manual_seed(5)
    try:
        engine.backward(engine(torch.randn(6, 11, generator=generator)))
        engine.step()
        return list(training.full(engine, "exp_avg").values())
    except (AssertionError, RuntimeError) as error:
        return repr(error)
    finally:
        training.close(engine)


def defects() -> dict[str, Any]:
    """How DeepSpeed behaves without each remedy, and with it. Two ranks."""
    claim_fp16()
    found: dict[str, Any] = {}

    engine = training.make_engine(training.config(0, "bf16", 2), attach=False)
    found["first step"] = training.difference(training.full(engine), training.model_weights(engine))
    zero.attach(engine)
    found["first step mended"] = training.difference(training.full(engine), training.model_weights(engine))
    training.close(engine)

    no_clip = {"gradient_clipping": 0.0}
    growing = {"fp16": {"loss_scale_window": 1, "initial_scale_power": 8}, **no_clip}
    for stage in (1, 2, 3):
        for remedy in (False, True):
            engine = training.make_engine(training.config(stage, "fp16", 2, **growing), attach=False)
            engine.basic_optimizer.attach(zero.segments(engine), zero.process_group(engine))
            if remedy:
                zero.grow_loss_scale_after_step(engine)
            training.train(engine, 0, 3)  # the scale doubles in the third step
            found["doubling", stage, remedy] = training.full(engine, "exp_avg")
            training.close(engine)

    fixed = {"fp16": {"loss_scale": 256.0}, **no_clip}
    for stage in (0, 1):
        engine = training.make_engine(training.config(stage, "fp16", 2, **fixed))
        training.train(engine, 0, 1)
        found["fp16", stage] = training.full(engine, "exp_avg")
        training.close(engine)

    for stage in (2, 3):
        for use_reentrant in (False, True):
            found["checkpointing", stage, use_reentrant] = gradients(use_reentrant, stage)
    return found
