"""What TensorBoard shows of a run: curves, descriptions, settings and pages of charts."""

import time

import pytest
from tensorboard import plugin_util
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.pipeline.tracking.made_records import SETTINGS, log_run

MAX_CHARTS = 25


def read(directory):
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    events.Reload()
    return events


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """A run that was killed after step 40, had a checkpoint of step 20, and then ran to step 60."""
    directory = tmp_path_factory.mktemp("runs") / "base"
    log_run(directory, 0, 40, finished=False)
    time.sleep(1 - time.time() % 1)  # TensorBoard reads files in the order of their names, which have whole seconds
    log_run(directory, 20, 60)
    return read(directory / "tensorboard")


def test_no_more_charts_than_a_person_reads(resumed):
    tags = resumed.Tags()
    assert len(tags["scalars"]) + len(tags["histograms"]) <= MAX_CHARTS


def test_every_step_is_there_once_also_after_a_kill(resumed):
    assert [event.step for event in resumed.Scalars("train/loss")] == list(range(10, 61, 10))
    assert [event.step for event in resumed.Scalars("eval/mlm_accuracy")] == [0, 20, 40, 60]
    assert [event.step for event in resumed.Histograms("trust_ratios")] == list(range(10, 61, 10))


def test_every_curve_has_a_description(resumed):
    for tag in resumed.Tags()["scalars"]:
        assert len(resumed.SummaryMetadata(tag).summary_description) > 10, tag


def text_of(events, tag):
    return plugin_util.markdown_to_safe_html(events.Tensors(tag)[-1].tensor_proto.string_val[0])


def test_settings_are_a_table_without_the_names_of_accounts(resumed):
    shown = text_of(resumed, "settings/text_summary")
    assert "<table>" in shown
    assert "<code>optimizer.params.lr</code>" in shown
    assert "<code>0.001</code>" in shown
    assert "a team" not in shown


def test_predictions_are_a_table(resumed):
    assert "<th>right</th>" in text_of(resumed, "eval/guesses/text_summary")


def test_the_files_of_an_older_run_go_on_where_they_are(tmp_path):
    place = tmp_path / "rte" / "seed-3" / "tensorboard" / "rte-seed-3"
    place.mkdir(parents=True)
    log_run(tmp_path / "rte" / "seed-3", 0, 20, settings={**SETTINGS, "seed": 3})
    assert list(place.iterdir())
    assert list(place.parent.iterdir()) == [place]
