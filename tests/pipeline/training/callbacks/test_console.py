"""The lines of a run: how wide, how many, and what they say."""

import math

import pytest

from pipeline.training.callbacks.console import LINE_SECONDS, WIDTH, ConsoleLines, evaluation_line, explain_overflow
from tests.pipeline.tracking.made_records import evaluation, training

LONG = 1_000_000


class Clock:
    """A clock that a test sets."""

    seconds = 0.0

    def __call__(self):
        return self.seconds


def record(**more):
    return {**training(10), **more}


def test_a_line_says_what_matters():
    clock = Clock()
    console = ConsoleLines(400, 0, on_gpu=False, now=clock)
    clock.seconds = 5.0
    line = console.training_line(10, record(overflow_steps=0), last=False)
    assert line == "step  10/400  loss 7.6000  mlm 1.0 %  sop 50.0 %  50 tokens/s  3 min 15 s left"


@pytest.mark.parametrize("on_gpu", [True, False])
def test_lines_fit(on_gpu):
    clock = Clock()
    console = ConsoleLines(LONG, 0, on_gpu, now=clock)
    clock.seconds = 3.0
    busy = record(loss=12345.678, tokens_per_second=123_456_789.0, data_wait_share=0.99, overflow_steps=99_999)
    line = console.training_line(1, busy, last=False)
    assert len(line) <= WIDTH
    assert "left" in line
    for fraction in (0.0123, 1.0):
        assert len(evaluation_line(LONG, evaluation(10), "mlm_loss", ("mlm", "sop"), fraction)) <= WIDTH


def test_a_gpu_has_mfu_and_a_processor_has_none():
    (on_gpu, on_cpu) = (ConsoleLines(100, 0, gpu).training_line(10, record(), last=True) for gpu in (True, False))
    assert "MFU 40 %" in on_gpu
    assert "MFU" not in on_cpu
    unknown = record()
    del unknown["peak_share"]
    assert "400 TFLOP/s" in ConsoleLines(100, 0, True).training_line(10, unknown, last=True)
    assert "FLOP" not in ConsoleLines(100, 0, False).training_line(10, unknown, last=True)


def test_waiting_is_said_when_it_costs_time():
    assert "waiting" not in ConsoleLines(100, 0, True).training_line(10, record(data_wait_share=0.01), last=True)
    assert "waiting 30 %" in ConsoleLines(100, 0, True).training_line(10, record(data_wait_share=0.3), last=True)


def test_few_lines_and_always_the_first_and_the_last():
    clock = Clock()
    console = ConsoleLines(100, 0, on_gpu=False, now=clock)
    printed = []
    for step in range(1, 101):
        clock.seconds += 1.0
        if console.training_line(step, record(), last=step == 100) is not None:
            printed.append(step)
    assert printed == [1, *range(11, 100, int(LINE_SECONDS)), 100]


def test_the_time_left_is_that_of_this_start_and_within_the_limit():
    clock = Clock()
    console = ConsoleLines(300, 100, on_gpu=False, now=clock)  # resumed at step 100
    clock.seconds = 20.0
    assert "20 s left" in console.training_line(200, record(), last=False, seconds_left=math.inf)
    clock.seconds = 40.0
    assert "7 s left" in console.training_line(250, record(), last=False, seconds_left=7.0)


def test_an_evaluation_shows_only_what_is_trained():
    line = evaluation_line(20, evaluation(20), "mlm_loss", ("mlm", "sop"))
    assert line == "step 20: held out  mlm 6.500 (10.0 %)  sop 60.0 %  MLM loss 10.0 % above the unigram entropy"
    assert "nsp" not in line
    tried = evaluation_line(0, evaluation(0), "mlm_loss", ("mlm",), fraction=0.125)
    assert tried == "step 0: held out  mlm 6.500 (10.0 %)  (12.5 % of the rows)"
    assert evaluation_line(5, {"f1": 0.5}, "f1") == "step 5: held out  f1 0.5000"


def test_only_fp16_has_a_loss_scale_to_lower() -> None:
    assert "the loss scale was lowered to 512" in explain_overflow("fp16", 2, 1000, 512.0)
    for precision in ("bf16", "fp32"):
        line = explain_overflow(precision, 2, 1000, 1.0)
        assert line.startswith(f"{precision}: gradients were infinite or no number in 2 of 1,000 steps. ")
        assert "scale" not in line
        assert "--precision" not in line
