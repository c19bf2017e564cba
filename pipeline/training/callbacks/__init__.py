"""What accompanies training: one file for each callback, and the list of them.

console           lines and the bar on the console
divergence        losses that are not finite
early_end         ends a run within --max-hours, or out of patience
hang_progress     notes what the rank is doing
metrics_log       metrics.jsonl, TensorBoard and trackers
step_metrics      the metrics of a record: of the task, of the engine, speed and memory
"""

from pipeline.distributed.exits import StopSignals
from pipeline.training.agreement import Agreements
from pipeline.training.callback import Callback, cannot_begin
from pipeline.training.callbacks.console import Console
from pipeline.training.callbacks.divergence import Divergence
from pipeline.training.callbacks.early_end import BestScore, Deadline
from pipeline.training.callbacks.hang_progress import HangProgress
from pipeline.training.callbacks.metrics_log import MetricsLog
from pipeline.training.callbacks.step_metrics import StepMetrics, Throughput
from pipeline.training.saves import Saves
from pipeline.training.state import TrainingRun
from pipeline.training.trainer import Trainer
from pipeline.training.training_task import TrainingTask


def make_trainer(
    run: TrainingRun, task: TrainingTask, signals: StopSignals, throughput: Throughput | None = None
) -> Trainer:
    """A trainer with all callbacks of a run. Their order is that of each moment: who reads a record comes last.

    Args:
        signals: stop-signal handlers, already installed.
        throughput: see `StepMetrics`.
    Raises:
        UserError: rank 0 cannot write the metrics; on all ranks.
    """
    hours = run.settings.flags.max_hours
    metrics_log = run.control.all_or_raise(lambda: MetricsLog(run), (OSError,), cannot_begin)
    callbacks: list[Callback] = [
        HangProgress(run),
        *([] if hours is None else [Deadline(run, task, hours)]),
        Divergence(run),
        StepMetrics(run, task, throughput),
        BestScore(run),
        metrics_log,
        Console(run, task.name),
    ]
    saves = Saves(run, callbacks, metrics_log.sync)
    callbacks = [*callbacks, saves]
    return Trainer(run, task, Agreements(run.control, signals, callbacks), callbacks, saves)
