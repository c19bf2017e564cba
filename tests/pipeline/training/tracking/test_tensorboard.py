"""What TensorBoard shows of a run: curves and settings, also after a kill."""

import time

import pytest
from tensorboard import plugin_util
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.pipeline.training.tracking.made_records import log_run


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """A run that was killed after step 40, had a checkpoint of step 20, and then ran to step 60."""
    directory = tmp_path_factory.mktemp("runs") / "base"
    log_run(directory, 0, 40, finished=False)
    time.sleep(1 - time.time() % 1)  # TensorBoard reads files in the order of their names, which have whole seconds
    log_run(directory, 20, 60)
    events = EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return events


def test_every_step_is_there_once_also_after_a_kill(resumed):
    assert [event.step for event in resumed.Scalars("train/loss")] == list(range(10, 61, 10))
    assert [event.step for event in resumed.Scalars("eval/mlm_accuracy")] == [0, 20, 40, 60]


def test_settings_are_a_table_without_the_names_of_accounts(resumed):
    text = resumed.Tensors("settings/text_summary")[-1].tensor_proto.string_val[0]
    settings = plugin_util.markdown_to_safe_html(text)
    assert "<code>optimizer.params.lr</code>" in settings
    assert "<code>0.001</code>" in settings
    assert "a team" not in settings
