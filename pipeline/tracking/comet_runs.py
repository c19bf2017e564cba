"""Comet, also its offline mode (`"online": false`). COMET_API_KEY has the key."""

import os
from typing import Any

from pipeline.tracking.tracker import PROJECT, JsonBlock, Scalars, Service, TrackedRun, shown_flat


class CometRun(Service):
    """Logs to one Comet experiment, which a resumed run continues."""

    block = "comet"
    package = "comet_ml"

    def __init__(self, run: TrackedRun, block: JsonBlock) -> None:
        # Scalars and settings only: without this, Comet would also change other packages so as to log their work.
        os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")
        import comet_ml

        known = run.id_of("comet") or block.get("experiment_key")
        self._experiment: Any = comet_ml.start(
            project=block.get("project") or PROJECT,
            workspace=block.get("workspace"),
            experiment_key=known,
            mode=block.get("mode"),
            online=block.get("online"),
            # Nor does it send the source code, git's differences and the output.
            experiment_config=comet_ml.ExperimentConfig(
                offline_directory=os.environ.get("COMET_OFFLINE_DIRECTORY") or str(run.directory / "comet"),
                log_code=False,
                log_git_metadata=False,
                log_git_patch=False,
                log_graph=False,
                auto_metric_logging=False,
                auto_param_logging=False,
                auto_output_logging=False,
                log_env_details=False,
                display_summary_level=0,
            ),
        )
        self._experiment.set_name(block.get("experiment_name") or run.name)
        if run.id_of("comet") is None:
            run.remember("comet", self._experiment.get_key())
        self._experiment.log_parameters(shown_flat(run.settings))

    def log(self, scalars: Scalars) -> None:
        """Logs the scalars of one record."""
        epoch = int(scalars.consumed["epochs"]) if "epochs" in scalars.consumed else None
        self._experiment.log_metrics(scalars.values, step=scalars.step, epoch=epoch)

    def close(self, finished: bool) -> None:
        """Ends the experiment."""
        self._experiment.end()
