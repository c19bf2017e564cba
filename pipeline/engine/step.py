"""Makes one step of a DeepSpeed engine, and reads its metrics afterwards."""

from deepspeed import DeepSpeedEngine
from torch import Tensor

from pipeline.engine import zero_layout
from pipeline.engine.lamb import Lamb


class LossScaleAtFloor(RuntimeError):
    """Gradients overflowed, and the fp16 loss scale is already the lowest that the JSON allows.

    Attributes:
        loss_scale: the present one.
    """

    def __init__(self, loss_scale: float) -> None:
        super().__init__(f"gradients overflow with the fp16 loss scale at its floor, {loss_scale:g}")
        self.loss_scale = loss_scale


def step(engine: DeepSpeedEngine) -> None:
    """Ends a micro-step; the last micro-step of a step updates the weights. Collective.

    Raises:
        LossScaleAtFloor: on all ranks together.
    """
    try:
        engine.step()
    except Exception as error:
        # runtime/fp16/loss_scaler.py, `update_scale`, raises a plain Exception. Only its text identifies it.
        if "loss scale" not in str(error):
            raise
        raise LossScaleAtFloor(zero_layout.loss_scale(engine)) from None


def set_learning_rate(engine: DeepSpeedEngine, rate: float) -> None:
    """Sets the learning rate of all parameters for the next update."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def gradient_norm(engine: DeepSpeedEngine) -> float:
    """The norm of the last step's gradients over all ranks, before clipping; 0 before the first step."""
    return float(gradient_norm_on_device(engine) or 0.0)


def gradient_norm_on_device(engine: DeepSpeedEngine) -> Tensor | float | None:
    """As `gradient_norm`, without waiting for the device: a scalar () or a number; None if it is not known."""
    return engine.get_global_grad_norm()


def trust_ratios(engine: DeepSpeedEngine) -> dict[str, float] | None:
    """The trust ratio of each scaled tensor in the last step, by name; None for optimizers other than `Lamb`."""
    optimizer = engine.basic_optimizer
    if not isinstance(optimizer, Lamb):
        return None
    return dict(zip(optimizer.tensor_names, optimizer.last_trust_ratios.tolist()))


def parameter_count(engine: DeepSpeedEngine) -> int:
    """The number of the model's parameters, at every ZeRO stage."""
    # At stage 3 a parameter is empty outside of forward and backward; `ds_numel` is its full size.
    return sum(getattr(tensor, "ds_numel", tensor.numel()) for tensor in engine.module.parameters())
