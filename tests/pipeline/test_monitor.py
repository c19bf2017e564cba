"""What is written of a run, also after it was killed in the middle of a line."""

import json

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline import monitor
from pipeline.monitor import Monitor


def test_a_resumed_run_writes_no_step_twice(tmp_path):
    first = Monitor(tmp_path, 0, enabled=True)
    for step in (10, 20, 30):
        first.log(step, {"loss": float(step)})
    first.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "spl')  # killed here
    second = Monitor(tmp_path, 20, enabled=True)
    second.log(30, {"loss": 31.0})
    second.log(30, {"loss": 2.0}, "eval")
    second.close()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(record["step"], record["split"], record["loss"]) for record in records] == [
        (10, "train", 10.0),
        (20, "train", 20.0),
        (30, "train", 31.0),
        (30, "eval", 2.0),
    ]
    assert monitor.last_record(tmp_path, "eval") == {"step": 30, "split": "eval", "loss": 2.0}
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(10, 10), (20, 20), (30, 31)]


def test_other_ranks_write_nothing(tmp_path):
    other = Monitor(tmp_path, 0, enabled=False)
    other.log(10, {"loss": 1.0})
    other.close()
    assert list(tmp_path.iterdir()) == []
    assert monitor.last_record(tmp_path, "train") is None
