"""What a watcher reads while a run trains."""

from types import SimpleNamespace

from pipeline.distributed.progress import get_progress
from pipeline.training.training_run import TrainingRun, TrainState


def test_a_phase_belongs_to_the_step_that_it_makes_or_follows() -> None:
    """A run that resumes after 4 steps. Its first evaluation comes before any step, and Ctrl-C says so."""
    progress = get_progress()
    progress.start_run()
    run = TrainingRun(None, SimpleNamespace(rank=0), None, TrainState(step=4))  # type: ignore[arg-type]
    seen = []
    for phase, steps_made in [
        ("evaluation", 4), ("data", 4), ("agreement", 4), ("forward", 4), ("data", 4), ("optimizer", 4),
        ("logging", 5), ("evaluation", 5), ("save", 5), ("data", 5),
    ]:  # fmt: skip
        run.state.step = steps_made
        run.enter(phase)  # type: ignore[arg-type]
        assert progress.phase == phase
        seen.append(progress.step)
    assert seen == [0, 5, 5, 5, 5, 5, 5, 5, 5, 6]
    progress.start_run()
