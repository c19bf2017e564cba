"""MLflow: a server, a database or its file store. MLFLOW_TRACKING_URI says where."""

import os
import re
import time
from typing import Any

from pipeline.tracking.tracker import PROJECT, JsonBlock, Scalars, Service, TrackedRun, shown_flat

MAX_PARAMETERS = 100
"""MLflow's bound for one call."""
_UNSAFE = re.compile(r"[^\w\-. :/]")


class MlflowRun(Service):
    """Logs to one MLflow run, which a resumed run continues."""

    package = "mlflow"

    def __init__(self, run: TrackedRun, block: JsonBlock) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if uri.startswith("file:") or (uri and "://" not in uri):
            # MLflow 3 refuses its own file store without this variable.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self._client: Any = MlflowClient()
        known = run.id_of("mlflow")
        self._id = self._start(run) if known is None else known
        if known is not None:
            self._client.update_run(self._id, status="RUNNING")

    def log(self, scalars: Scalars) -> None:
        """Logs the scalars of one record in one call."""
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        values = scalars.values | scalars.consumed
        metrics = [Metric(_UNSAFE.sub("_", tag), value, now, scalars.step) for tag, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, finished: bool) -> None:
        """Ends the MLflow run: FINISHED, or KILLED if it may be resumed."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")

    def _start(self, run: TrackedRun) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        identifier: str = self._client.create_run(number, run_name=run.name).info.run_id
        run.remember("mlflow", identifier)
        parameters = [Param(_UNSAFE.sub("_", key), str(value)) for key, value in shown_flat(run.settings).items()]
        for start in range(0, len(parameters), MAX_PARAMETERS):
            self._client.log_batch(identifier, params=parameters[start : start + MAX_PARAMETERS])
        return identifier
