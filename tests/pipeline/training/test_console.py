"""The lines of a run: how many, and what they say."""

from types import SimpleNamespace

import pytest

from pipeline.training.callbacks import LINE_SECONDS, Console, evaluation_lines
from pipeline.training.training_run import Evaluation, TrainingRun, TrainState
from tests.pipeline.training.made_records import evaluation, training


class Lines:
    """The console of a run that starts at `first`, with a clock that a test sets, and what it prints."""

    def __init__(self, steps=400, first=0, on_gpu=False, max_hours=None):
        self.now = 0.0
        device = SimpleNamespace(type="cuda" if on_gpu else "cpu")
        groups = [{"weight_decay": 0.01}, {"weight_decay": 0.0}]
        engine = SimpleNamespace(device=device, skipped_steps=1, optimizer=SimpleNamespace(param_groups=groups))
        settings = SimpleNamespace(steps=steps, flags=SimpleNamespace(max_hours=max_hours))
        self.run = TrainingRun(settings, SimpleNamespace(rank=0), engine, TrainState(step=first))
        self.console = Console(self.run, now=lambda: self.now)
        self.said = []
        self.run.say = self.said.append

    def log(self, step, now, **more):
        """Logs a record after `step`, `now` seconds after the start. Returns the line; None without one."""
        self.now, self.run.state.step, before = now, step, len(self.said)
        self.console.on_log({**training(10), **more}, is_last=step == self.run.settings.steps)
        return self.said[-1] if len(self.said) > before else None


@pytest.mark.parametrize(
    ("on_gpu", "step", "more", "end"),
    [
        (False, 10, {"overflow_steps": 0}, "6 min 30 s left"),  # of this start, which began after step 5
        (False, 10, {"overflow_steps": 0, "seconds": 3593.0}, "7 s left"),
        (False, 400, {"data_wait_share": 0.3}, "50 tokens/s  waiting 30 %  overflows 1"),
        (True, 400, {"overflow_steps": 0}, "50 tokens/s  MFU 40 %"),
    ],
)
def test_a_line_says_what_matters(on_gpu, step, more, end):
    line = Lines(first=5, on_gpu=on_gpu, max_hours=1.0).log(step, 5.0, **more)
    assert line.startswith(f"step {step:>3}/400  loss 7.6000  mlm 1.0 %  sop 50.0 %  50 tokens/s")
    assert line.endswith(f"  {end}")


def test_few_lines_and_always_the_first_and_the_last():
    lines = Lines(100)
    printed = [step for step in range(1, 101) if lines.log(step, float(step)) is not None]
    assert printed == [1, *range(11, 100, int(LINE_SECONDS)), 100]


def test_the_first_overflow_is_explained_once():
    lines = Lines()
    lines.run.settings.engine = SimpleNamespace(precision="fp16")
    lines.console._overflow_explained = False
    assert "loss scale was lowered to 1024" in lines.log(10, 5.0)
    assert lines.log(20, 6.0) is None
    lines.run.settings.engine = SimpleNamespace(precision="bf16")
    lines.console._overflow_explained = False
    assert "loss scale" not in (line := lines.log(30, 5.0))
    assert "no number" in line


def test_weights_that_lamb_only_shrinks_are_named_once():
    """These ratios are of albert-base on a GPU, at a rate that was too high: it never learned anything again."""
    lines = Lines()
    query, projection = "albert.encoder.attention.0.query", "albert.embeddings.projection"
    ratios = {query: 81.0, "albert.encoder.value": 75.0, projection: 100.0, "albert.embeddings.word": 0.2}
    lines.log(10, 0.0, trust_ratios=ratios | {query: 70.0, projection: 3.0, "albert.pooler.dense.weight": 100.0})
    assert len(lines.said) == 1
    lines.log(20, 1.0, trust_ratios=ratios)
    assert lines.said[1].startswith(
        f"LAMB shrinks {query}, {projection} by the learning rate at each step: their gradients"
    )
    lines.log(30, 2.0, trust_ratios=ratios)
    assert len(lines.said) == 2


def test_an_evaluation_shows_only_what_is_trained_and_each_held_out_set_in_a_line():
    (line,) = evaluation_lines(20, Evaluation(evaluation(20), 0.1, "mlm_loss", ("mlm", "sop")))
    assert line == "step 20: held out  mlm 6.500 (10.0 %)  sop 60.0 %  MLM loss 10.0 % above the unigram entropy"
    (tried,) = evaluation_lines(0, Evaluation(evaluation(0), 0.1, "mlm_loss", ("mlm",)), fraction=0.125)
    assert tried == "step 0: held out  mlm 6.500 (10.0 %)  (12.5 % of the rows)"
    assert evaluation_lines(5, Evaluation({"f1": 0.5}, 0.5, "f1")) == ["step 5: held out  f1 0.5000"]
    other = {f"books/{name}": value for name, value in (evaluation(20) | {"mlm_accuracy": 0.2}).items()}
    metrics, names = evaluation(20) | other, ("wikipedia", "books")
    first, second = evaluation_lines(20, Evaluation(metrics, 0.1, "mlm_loss", ("mlm",), names))
    assert first.startswith("step 20: held out wikipedia  mlm 6.500 (10.0 %)")
    assert second.startswith("step 20: held out books  mlm 6.500 (20.0 %)")
