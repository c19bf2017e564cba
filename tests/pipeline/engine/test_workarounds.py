"""Whether DeepSpeed still needs each workaround."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch

from common.errors import UserError
from pipeline.distributed.rendezvous import reserve_port
from pipeline.engine import workarounds
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.workers import processes, training
from tests.pipeline.workers.cases.workaround import show_bugs

FIXED = "DeepSpeed has fixed this: remove the workaround from pipeline/engine/workarounds.py, and this test"


def test_another_deepspeed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    workarounds.check_version()
    monkeypatch.setattr(deepspeed, "__version__", "0.20.0+abc")
    with pytest.raises(UserError, match=r"deepspeed 0\.20\.0 is installed.*pip install deepspeed==0\.19\.8"):
        workarounds.check_version()
    monkeypatch.setattr(deepspeed, "__version__", "0.19.8+local")
    workarounds.check_version()


@pytest.mark.slow
def test_a_start_compiles_nothing_and_leaves_nothing_in_shared_memory(tmp_path: Path) -> None:
    program = "from pipeline.engine import workarounds; workarounds.init_distributed('gloo')"
    before = set(os.listdir("/dev/shm"))
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port()), "WORLD_SIZE": "2"}
    environment |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True,
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [(rank.communicate(timeout=1500)[0], rank.returncode) for rank in ranks] == [("", 0)] * 2
    assert list(tmp_path.iterdir()) == []
    assert not [name for name in set(os.listdir("/dev/shm")) - before if name.startswith("deepspeed")]


@pytest.fixture(scope="module")
def found_bugs(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    found: dict[Any, Any] = processes.run(2, show_bugs, scratch=tmp_path_factory.mktemp("zero"))
    return found


@pytest.mark.slow
def test_bf16_at_stage_0_steps_before_training(found_bugs: dict[Any, Any]) -> None:
    assert found_bugs["first step"] > 1e-3, FIXED
    assert found_bugs["first step mended"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_loss_scale_doubles_before_gradients_are_unscaled(stage: int, found_bugs: dict[Any, Any]) -> None:
    wanted = training.reference(3, parts=2, dtype=torch.float16, clip=0.0)["exp_avg"]
    assert training.difference(found_bugs["doubling", stage, True], wanted) < 0.01
    assert training.difference(found_bugs["doubling", stage, False], wanted) > 0.2, FIXED


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_step_in_fp16_looks_for_an_overflow_that_the_norm_shows(stage: int, found_bugs: dict[Any, Any]) -> None:
    assert found_bugs["overflow checks", stage, False] == 3, FIXED
    assert found_bugs["overflow checks", stage, True] == 0


@pytest.mark.slow
def test_the_norm_of_fp32_gradients_at_stage_0_is_inaccurate_and_not_kept(found_bugs: dict[Any, Any]) -> None:
    norm = 0.01 * math.sqrt(4_000_000 + 29 * 7)
    wanted = 0.01 * training.CLIP / (norm + 1e-6)
    clipped, told = found_bugs["clipped", True]
    assert clipped == pytest.approx(wanted, rel=1e-6)
    assert float(told) == pytest.approx(norm, rel=1e-6)
    clipped, told = found_bugs["clipped", False]
    assert abs(clipped / wanted - 1.0) > 1e-5, FIXED
    assert told is None, FIXED
    wanted = float(found_bugs["norm without clipping", 1, False])
    assert wanted > 0.1
    assert float(found_bugs["norm without clipping", 0, True]) == pytest.approx(wanted, rel=1e-5)
    assert found_bugs["norm without clipping", 0, False] is None, FIXED


@pytest.mark.slow
def test_fp16_at_stage_0_divides_by_a_scale_that_never_multiplied_the_loss(found_bugs: dict[Any, Any]) -> None:
    wanted = training.reference(1, parts=2, dtype=torch.float16, clip=0.0)["exp_avg"]
    assert training.difference(found_bugs["fp16", 1], wanted) < 0.01
    assert training.difference(found_bugs["fp16", 0], wanted) > 0.5, FIXED


@pytest.mark.slow
def test_a_rank_imports_neither_mlflow_nor_the_compiler_nor_metrics() -> None:
    program = (
        "from pipeline.engine.ranks import install_stand_ins\n"
        "install_stand_ins()\n"
        "import pipeline.pretraining.pretraining_recipe, pipeline.finetuning.finetuning_recipe, sys\n"
        "from deepspeed.runtime.zero.muon import muon_optimizer\n"
        "print({'deepspeed', 'mlflow', 'sklearn', 'scipy', 'torch._inductor.compile_fx'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert done.stdout == "{'deepspeed'}\n"
