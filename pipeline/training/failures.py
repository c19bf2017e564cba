"""Why training ends early. Each of these is raised on all ranks together."""

from pipeline.distributed.exits import EXIT_FAILED
from pipeline.training.spikes import Spike

REMEDY = "lower the learning rate, lengthen the warm-up or use --precision bf16, and start again with another --output"


class TrainingFailed(RuntimeError):
    """Training cannot continue. The message says why and what to try.

    Attributes:
        status: the exit status of the ranks.
    """

    status = EXIT_FAILED


class SpikeFound(Exception):
    """A spike was found, and the run should go back to a checkpoint before it.

    Attributes:
        spike: that was found.
    """

    def __init__(self, spike: Spike) -> None:
        super().__init__(str(spike))
        self.spike = spike


class EvaluationLeft(Exception):
    """A stop signal ended an evaluation early.

    Attributes:
        stop_signal: its number.
    """

    def __init__(self, stop_signal: int) -> None:
        super().__init__(f"signal {stop_signal}")
        self.stop_signal = stop_signal
