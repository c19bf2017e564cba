"""`make gpu`: its parts work at a tiny size on the processor, it goes on where it ended, and its page is read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import page, speed
from benchmarks.gpu import parts as gpu_parts
from benchmarks.gpu.parts import parts
from benchmarks.shared import systems
from pipeline.engine import hardware
from tests.pipeline.test_pretrain import Job as ForkedJob

WITHOUT = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
TINY = ["--device", "cpu", "--scale", "tiny"]
MACHINE = {"date": "2026-01-02", "device": "cuda", "hardware": {"name": "NVIDIA H200"}, "versions": {"torch": "2"}}


@WITHOUT
def test_without_a_gpu_it_says_so_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main([]) == 0
    assert capsys.readouterr().out == "no GPU here: nothing to measure\n"
    assert gpu.main(["--device", "cuda"]) == 2
    assert capsys.readouterr().err == "error: --device cuda: this machine has no GPU; leave the flag out\n"
    for words in (["--part", "sped"], ["--part", "scaling:999"], [*TINY, "--part", "sped"], ["--text", "no/file"]):
        assert gpu.main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert gpu.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(parts())


@pytest.mark.slow
def test_parts_are_measured_once_and_failed_ones_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_parts, "Job", ForkedJob)
    out, pages = tmp_path / "out", tmp_path / "pages"
    speed_part = "speed-albert-base-128-bf16"
    words = [*TINY, "--out", str(out), "--page", str(pages), "--name", "here"]
    here = ["run-albert-base", "profile-albert-base", speed_part, "scaling", "tests-kernels"]
    for name in here:
        assert gpu.main([*words, "--here", name]) == 0
    before = {name: (out / f"{name}.json").stat().st_mtime_ns for name in here}
    chosen = [*here, "tests-models"]
    for part in parts():  # so that only one is missing
        if part.name not in chosen:
            (out / f"{part.name}.json").write_text("{}")
    (out / "tests-models.json").write_text('{"error": "broken"}')
    capsys.readouterr()
    assert gpu.main([*words, "--list"]) == 0
    states = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert [state for state in states if state[1] != "done"] == [["tests-models", "failed"]]

    assert gpu.main(words) == 0, (out / "tests-models.log").read_text()
    assert [name for name in here if (out / f"{name}.json").stat().st_mtime_ns != before[name]] == []
    result = json.loads((pages / "gpu-here.json").read_text())
    text = (pages / "gpu-here.md").read_text()
    assert text == page.markdown(result) + "\n"
    assert set(result["parts"]) == {part.name for part in parts()}
    assert set(result["gains"]["albert-base-128-bf16"]) == set(page.FEATURES)
    systems = [row["system"] for row in result["measurements"]]
    assert systems == ["this", "transformers", *speed.GAINS]
    assert all(row["planned_memory_gb"] > 0 for row in result["runs"])
    assert [row["gpus"] for row in result["scaling"]["scaling"]] == [1, 2]
    assert [row["checkpointing"] for row in result["runs"]] == ["none", "layer"] * 2
    assert [row["dropout"] for row in result["runs"]] == [0.1, 0.1, 0.0, 0.0]
    (profile,) = result["profiles"]
    assert sum(row["seconds"] for row in profile["kernels"]) > 0
    assert profile["kernels"] == sorted(profile["kernels"], key=lambda row: -row["seconds"])
    assert all(row["pairs_per_row"] >= 1 for row in result["measurements"])
    assert all(row["loss"] < 7 and row["tokens_per_second"] > 0 for row in result["runs"])
    assert result["copy_gigabytes_per_second"] > 0
    assert all(row["packed_tflops"] < row["tflops"] for row in result["measurements"] if "tflops" in row)
    assert set(result["tests"].values()) == {"passed"}


@pytest.mark.slow
def test_variants_that_fail_leave_the_other_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: str, *rest: Any, **more: Any) -> Any:
        if name == "this, masked attention":
            raise RuntimeError("no kernel image is available")
        return systems.variant(name, *rest, **more)

    monkeypatch.setattr(speed, "variant", make)
    monkeypatch.setattr(hardware.shutil, "which", lambda name: None)
    out, name = tmp_path / "out", "speed-albert-base-128-bf16"
    assert gpu.main([*TINY, "--out", str(out), "--here", name, "--only", "masked", "chunked", "this, compiled"]) == 1
    found = json.loads((out / f"{name}.json").read_text())
    result = page.combine(MACHINE, {name: found})
    for gains in (found["gains"], result["gains"]["albert-base-128-bf16"]):
        assert set(gains) == {"transformers", "chunked_loss"}
    for message in (
        "this, compiled: torch.compile needs a C compiler (gcc)",
        "this, masked attention: no kernel image is available",
    ):
        assert message in found["error"]
        assert message in page.markdown(result)
