"""The lines of a run: how wide, how many, and what they say."""

from types import SimpleNamespace

import pytest

from pipeline.training.callbacks.console import LINE_SECONDS, WIDTH, Console, evaluation_line, explain_overflow
from pipeline.training.state import TrainingRun, TrainState
from tests.pipeline.tracking.made_records import evaluation, training

LONG = 1_000_000


class Lines:
    """The console of a run that starts at `first`, with a clock that a test sets, and what it prints."""

    def __init__(self, steps=400, first=0, on_gpu=False, max_hours=None):
        self.now = 0.0
        device = SimpleNamespace(type="cuda" if on_gpu else "cpu")
        engine = SimpleNamespace(device=device, skipped_steps=1)
        settings = SimpleNamespace(steps=steps, max_hours=max_hours)
        self.run = TrainingRun(settings, SimpleNamespace(rank=0), engine, TrainState(step=first))
        self.console = Console(self.run, "pre-training", now=lambda: self.now)
        self.said = []
        self.run.say = self.said.append

    def log(self, step, now, **more):
        """Logs a record after `step`, `now` seconds after the start. Returns the line; None without one."""
        self.now, self.run.state.step, before = now, step, len(self.said)
        self.run.ends = step == self.run.settings.steps
        self.console.on_log({**training(10), **more})
        return self.said[-1] if len(self.said) > before else None


def test_a_line_says_what_matters():
    line = Lines().log(10, 5.0, overflow_steps=0)
    assert line == "step  10/400  loss 7.6000  mlm 1.0 %  sop 50.0 %  50 tokens/s  3 min 15 s left"


@pytest.mark.parametrize("on_gpu", [True, False])
def test_lines_fit(on_gpu):
    busy = {"loss": 12345.678, "tokens_per_second": 123_456_789.0, "data_wait_share": 0.99, "overflow_steps": 99_999}
    line = Lines(LONG, on_gpu=on_gpu).log(1, 3.0, **busy)
    assert len(line) <= WIDTH
    assert "left" in line
    for fraction in (0.0123, 1.0):
        assert len(evaluation_line(LONG, evaluation(10), "mlm_loss", ("mlm", "sop"), fraction)) <= WIDTH


def test_a_gpu_has_mfu_and_a_processor_has_none():
    assert "MFU 40 %" in Lines(on_gpu=True).log(400, 5.0)
    assert "MFU" not in Lines().log(400, 5.0)
    unknown = training(10)
    del unknown["peak_share"]
    for on_gpu in (True, False):
        lines = Lines(on_gpu=on_gpu)
        lines.run.ends = True
        lines.console.on_log(unknown)
        assert ("400 TFLOP/s" in lines.said[0], "FLOP" in lines.said[0]) == (on_gpu, on_gpu)


def test_waiting_is_said_when_it_costs_time():
    assert "waiting" not in Lines().log(400, 5.0, data_wait_share=0.01)
    assert "waiting 30 %" in Lines().log(400, 5.0, data_wait_share=0.3)


def test_few_lines_and_always_the_first_and_the_last():
    lines = Lines(100)
    printed = [step for step in range(1, 101) if lines.log(step, float(step)) is not None]
    assert printed == [1, *range(11, 100, int(LINE_SECONDS)), 100]


def test_the_time_left_is_that_of_this_start_and_within_the_limit():
    lines = Lines(300, first=100, max_hours=1.0)
    assert "20 s left" in lines.log(200, 20.0, seconds=100.0)
    assert "7 s left" in lines.log(250, 40.0, seconds=3593.0)


def test_the_first_overflow_is_explained_once():
    lines = Lines()
    lines.run.settings.engine = SimpleNamespace(precision="fp16")
    lines.console._overflow_explained = False
    assert "the loss scale was lowered to 1024" in lines.log(10, 5.0)
    assert lines.log(20, 6.0) is None


def test_the_bar_of_a_resumed_run_counts_as_its_lines_do():
    console = Lines(300, first=100).console
    console.on_start()
    console.on_step(1.0)
    assert (console._bar._done, console._bar.total) == (101, 300)
    console.on_end()


def test_an_evaluation_shows_only_what_is_trained():
    line = evaluation_line(20, evaluation(20), "mlm_loss", ("mlm", "sop"))
    assert line == "step 20: held out  mlm 6.500 (10.0 %)  sop 60.0 %  MLM loss 10.0 % above the unigram entropy"
    tried = evaluation_line(0, evaluation(0), "mlm_loss", ("mlm",), fraction=0.125)
    assert tried == "step 0: held out  mlm 6.500 (10.0 %)  (12.5 % of the rows)"
    assert evaluation_line(5, {"f1": 0.5}, "f1") == "step 5: held out  f1 0.5000"


def test_only_fp16_has_a_loss_scale_to_lower() -> None:
    for precision in ("bf16", "fp32"):
        line = explain_overflow(precision, 2, 1000, 1.0)
        assert line.startswith(f"{precision}: gradients were infinite or no number in 2 of 1,000 steps. ")
        assert "scale" not in line
