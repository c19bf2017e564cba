"""Writes the records of a run to metrics.jsonl, TensorBoard and trackers."""

from typing import Any

from pipeline.checkpoint.saver import Saved
from pipeline.tracking import services
from pipeline.training.callback import Callback
from pipeline.training.metrics_log import MetricsLog
from pipeline.training.state import TrainingRun
from pipeline.training.training_task import Evaluation


def open_metrics_log(run: TrainingRun) -> MetricsLog:
    """The log of a start of `run`, which writes on rank 0. Records of later steps than the state's are dropped."""
    settings, state = run.settings, run.state
    return MetricsLog(
        settings.output,
        state.step,
        enabled=run.is_rank_0,
        settings=settings.to_dict(),
        on_gpu=run.engine.device.type != "cpu",
        all_curves=settings.all_curves,
        open_trackers=lambda tracked: services.open_all(settings.track, settings.engine.json, tracked),
        evaluation_due=state.evaluation_due is not None,
    )


class MetricsWriter(Callback):
    """Writes a record for each logged line, evaluation and save. It must follow the callbacks that add to records."""

    def __init__(self, run: TrainingRun, metrics_log: MetricsLog) -> None:
        self._run, self._log = run, metrics_log

    def log(self, record: dict[str, Any]) -> None:
        """Writes the record of the present step."""
        self._log.log(self._run.state.step, record)

    def tried_evaluation(self, evaluation: Evaluation | None, fraction: float) -> None:
        """Gives the curves of a new run their first point, which is none of metrics.jsonl."""
        if evaluation is not None and self._run.state.step == 0:
            self._log.log(0, evaluation.metrics, "eval", recorded=False)

    def evaluated(self, evaluation: Evaluation, seconds: float) -> None:
        """Writes the record of an evaluation."""
        step = self._run.state.step
        samples = step * self._run.settings.engine.train_batch_size
        self._log.log(step, evaluation.metrics | {"samples": samples}, "eval")

    def saved(self, checkpoint: Saved) -> None:
        """Writes what a save has cost."""
        seconds = {"checkpoint_seconds": checkpoint.seconds, "blocked_seconds": checkpoint.blocked_seconds}
        self._log.log(checkpoint.step, seconds, "save")

    def end(self) -> None:
        """Closes files and trackers."""
        self._log.close(self._run.state.finished)
