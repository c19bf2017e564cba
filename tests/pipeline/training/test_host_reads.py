"""Between two logged lines the host does not wait for the device, except where DeepSpeed itself reads a value.

A processor shows what would wait on a GPU: the calls are the same, only their cost is not.
"""

from typing import Any

import pytest

from tests.pipeline.training.test_loop import STEPS, Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.host_reads import Waits, count_waits

pytestmark = pytest.mark.slow

CLIPPED = (("gradient_clipping", 1.0),)
FP16 = (*CLIPPED, ("fp16", {"enabled": True, "initial_scale_power": 8}))
LONG = 6
ONCE = tuple(
    word for name in ("steps", "log-interval", "eval-interval", "save-interval") for word in (f"--{name}", str(LONG))
)
STAGES = [
    Run(f"{precision} at stage {stage}", 1, 6, stage, FP16 if precision == "fp16" else CLIPPED, ONCE, precision)
    for stage, precision in ((1, "fp16"), (3, "bf16"))
]
WHOLE, IN_SIX = (Run(f"reading {micro}", 1, micro) for micro in (12, 2))
TIMED = Run("timed", 1, 6, settings=(("timers", {"throughput": {"enabled": True}}),))

# What is left in DeepSpeed 0.19.8, in each step: is the norm of the gradients a number?
NORM = "deepspeed/runtime/utils.py: is_invalid_grad_norm"
TRACED = 3
"""Stage 3 learns the order of the layers in the first steps, and compares it between the ranks."""


@pytest.fixture(scope="module")
def waits(corpus: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Waits]:
    folder = tmp_path_factory.mktemp("waits")
    runs = [*STAGES, WHOLE, IN_SIX, TIMED]
    found = processes.run(1, count_waits, [run.command(corpus, folder) for run in runs], scratch=folder)
    return dict(zip((run.name for run in runs), found))


@pytest.mark.parametrize("run", STAGES, ids=lambda run: run.name)
def test_only_deepspeed_s_checks_of_a_step_read_values(waits: dict[str, Waits], run: Run) -> None:
    steps = waits[run.name].reads
    assert len(steps) == LONG
    for reads in steps[TRACED if run.stage == 3 else 0 :]:
        assert reads == {NORM: 1}


@pytest.mark.parametrize("run", [*STAGES, WHOLE, IN_SIX], ids=lambda run: run.name)
def test_nothing_synchronises_the_device(waits: dict[str, Waits], run: Run) -> None:
    assert waits[run.name].synchronisations == 0


def test_the_json_can_turn_the_timer_on(waits: dict[str, Waits]) -> None:
    """Its synchronisations are counted, so the counter of the test above works. It starts with the second step."""
    assert waits[TIMED.name].synchronisations >= 2 * 2 * (STEPS - 2)


def test_micro_steps_read_no_values(waits: dict[str, Waits]) -> None:
    """The number of values that a step reads from the device does not grow with its micro-steps."""
    assert len(waits[WHOLE.name].reads) == STEPS
    assert waits[IN_SIX.name].reads == waits[WHOLE.name].reads
