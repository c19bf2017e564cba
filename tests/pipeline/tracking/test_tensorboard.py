"""What TensorBoard shows of a run: curves, settings and predictions, also after a kill."""

import time

import pytest
from tensorboard import plugin_util
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.pipeline.tracking.made_records import SETTINGS, log_run


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """A run that was killed after step 40, had a checkpoint of step 20, and then ran to step 60."""
    directory = tmp_path_factory.mktemp("runs") / "base"
    log_run(directory, 0, 40, finished=False)
    time.sleep(1 - time.time() % 1)  # TensorBoard reads files in the order of their names, which have whole seconds
    log_run(directory, 20, 60)
    events = EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    return events


def test_every_step_is_there_once_also_after_a_kill(resumed):
    assert [event.step for event in resumed.Scalars("train/loss")] == list(range(10, 61, 10))
    assert [event.step for event in resumed.Scalars("eval/mlm_accuracy")] == [0, 20, 40, 60]
    assert [event.step for event in resumed.Histograms("trust_ratios")] == list(range(10, 61, 10))


def test_settings_and_predictions_are_tables_without_the_names_of_accounts(resumed):
    settings, predictions = (
        plugin_util.markdown_to_safe_html(resumed.Tensors(f"{tag}/text_summary")[-1].tensor_proto.string_val[0])
        for tag in ("settings", "eval/guesses")
    )
    assert "<code>optimizer.params.lr</code>" in settings
    assert "<code>0.001</code>" in settings
    assert "a team" not in settings
    assert "<th>right</th>" in predictions


def test_the_files_of_an_older_run_go_on_where_they_are(tmp_path):
    place = tmp_path / "rte" / "seed-3" / "tensorboard" / "rte-seed-3"
    place.mkdir(parents=True)
    log_run(tmp_path / "rte" / "seed-3", 0, 20, settings={**SETTINGS, "seed": 3})
    assert list(place.iterdir())
    assert list(place.parent.iterdir()) == [place]
