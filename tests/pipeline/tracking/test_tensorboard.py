"""What TensorBoard shows of a run: curves, descriptions, settings and pages of charts."""

import json
import re

import pytest
from tensorboard import plugin_util
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2

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
    log_run(directory, 20, 60)
    return read(directory / "tensorboard" / "base")


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


def test_the_layout_draws_only_curves_that_exist_and_almost_all_of_them(resumed):
    (event,) = [event for event in resumed.Tensors("custom_scalars__config__") if event.step == 0][-1:]
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    assert [category.title[3:] for category in layout.category] == [
        "Does it learn?", "Is it healthy?", "Is it fast?",
    ]  # fmt: skip
    tags, drawn = resumed.Tags()["scalars"], set()
    for chart in (chart for category in layout.category for chart in category.chart):
        names = {getattr(series, end) for series in chart.margin.series for end in ("value", "lower", "upper")}
        assert names <= set(tags)
        found = {tag for tag in tags for pattern in chart.multiline.tag if re.search(pattern, tag)}
        assert names | found, chart.title
        drawn |= names | found
    assert set(tags) - drawn == {"train/loss"}
    first = layout.category[0].chart[-1].margin.series
    assert (first[0].value, first[0].lower) == ("eval/mlm_accuracy", "eval/mlm_accuracy_low")
    assert first[1].value == "train/mlm_accuracy"


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


def test_a_seed_has_the_name_of_its_task_as_well(tmp_path):
    log_run(tmp_path / "rte" / "seed-3", 0, 20, settings={**SETTINGS, "seed": 3})
    assert [path.name for path in (tmp_path / "rte" / "seed-3" / "tensorboard").iterdir()] == ["rte-seed-3"]
    assert json.loads((tmp_path / "rte" / "seed-3" / "metrics.jsonl").read_text().splitlines()[0])["step"] == 10
