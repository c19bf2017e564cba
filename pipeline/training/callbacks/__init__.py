"""What looks on while a run trains: one file for each callback, and the list of them.

console           lines on the console
metrics_log       metrics.jsonl, TensorBoard and trackers
"""

from pipeline.distributed.exits import StopSignals
from pipeline.training.callback import cannot_begin
from pipeline.training.callbacks.console import Console
from pipeline.training.callbacks.metrics_log import MetricsLog
from pipeline.training.step_metrics import Throughput
from pipeline.training.trainer import Trainer
from pipeline.training.training_run import TrainingRun
from pipeline.training.training_task import TrainingTask


def make_trainer(
    run: TrainingRun, task: TrainingTask, signals: StopSignals, throughput: Throughput | None = None
) -> Trainer:
    """A trainer with all callbacks of a run.

    Args:
        signals: stop-signal handlers, already installed.
        throughput: see `StepMetrics`.
    Raises:
        UserError: rank 0 cannot write the metrics; on all ranks.
    """
    metrics_log = run.control.all_or_raise(lambda: MetricsLog(run), (OSError,), cannot_begin)
    return Trainer(run, task, signals, [metrics_log, Console(run)], metrics_log.sync, throughput)
