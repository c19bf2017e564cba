"""`make gpu`: its parts work at a tiny size on the processor, it goes on where it ended, and its page is read."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import page, runs, speed
from benchmarks.gpu.parts import PARTS, outcomes
from benchmarks.gpu.profiled import summarise
from benchmarks.shared import systems
from pipeline.engine import hardware
from tests.pipeline.test_pretrain import Job as ForkedJob

WITHOUT = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
TINY = ["--device", "cpu", "--scale", "tiny"]
MACHINE = {"date": "2026-01-02", "device": "cuda", "hardware": {"name": "NVIDIA H200"}, "versions": {"torch": "2"}}


@WITHOUT
def test_without_a_gpu_it_says_so_in_a_line(capsys):
    assert gpu.main([]) == 0
    assert capsys.readouterr().out == "no GPU here: nothing to measure\n"
    assert gpu.main(["--device", "cuda"]) == 2
    assert capsys.readouterr().err == "error: --device cuda: this machine has no GPU; leave the flag out\n"
    for words in (["--part", "sped"], ["--part", "scaling:999"], [*TINY, "--part", "sped"], ["--text", "no/file"]):
        assert gpu.main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_parts_are_measured_once_and_failed_ones_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runs, "Job", ForkedJob)
    out, pages, speed_part = tmp_path / "out", tmp_path / "pages", "speed-albert-base-128-bf16"
    words = [*TINY, "--out", str(out), "--page", str(pages)]
    chosen = {
        "run-albert-base": ["fp16-dropout-0.0"],
        "profile-albert-base": ["fp16-dropout-0.0"],
        speed_part: ["masked", "one pair", "chunked", "this, compiled", "blocks, compiled"],
    }
    for name, only in chosen.items():
        assert gpu.main([*words, "--here", name, "--only", *only]) == 0
    before = {name: (out / f"{name}.json").stat().st_mtime_ns for name in chosen}
    for name in PARTS:  # so that only one is missing
        if name not in chosen:
            (out / f"{name}.json").write_text('{"seconds": 1}')
    (out / "scaling.json").write_text('{"error": "broken"}')
    capsys.readouterr()

    assert gpu.main(words) == 0, (out / "scaling.log").read_text()
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[:-1]] == [["scaling", "done"]]
    assert [name for name in chosen if (out / f"{name}.json").stat().st_mtime_ns != before[name]] == []
    (written,) = pages.glob("*.json")
    result = json.loads(written.read_text())
    assert written.with_suffix(".md").read_text() == page.markdown(result) + "\n"
    found = result["parts"]
    assert set(found) == set(PARTS)
    measured = found[speed_part]["measurements"]
    variants = [name for name in speed.VARIANTS if any(word in name for word in chosen[speed_part])]
    assert [row["system"] for row in measured] == ["this", "transformers", *variants]
    features = {speed.VARIANTS[name].feature for name in variants} | {"transformers"}
    assert {row["feature"]: row["gain"] > 0 for row in measured[1:]} == dict.fromkeys(features, True)
    assert all(row["packed_tflops"] < row["tflops"] for row in measured if "tflops" in row)
    assert all(row["pairs_per_row"] >= 1 for row in measured)
    assert measured[1]["loss_difference"] < 0.01
    assert found[speed_part]["copy_gigabytes_per_second"] > 0
    rows = found["run-albert-base"]["runs"]
    assert [(row["dropout"], row["checkpointing"]) for row in rows] == [
        (0.0, checkpointing) for checkpointing in ("none", "layer")
    ]
    assert all(row["planned_memory_gb"] > 0 and row["loss"] < 7 and row["tokens_per_second"] > 0 for row in rows)
    profile = found["profile-albert-base"]["profile"]
    assert profile["dropout"] == 0.0
    assert sum(row["seconds"] for row in profile["kernels"]) > 0
    assert profile["kernels"] == sorted(profile["kernels"], key=lambda row: -row["seconds"])
    assert [row["gpus"] for row in found["scaling"]["scaling"]] == [1, 2]


@pytest.mark.slow
def test_variants_that_fail_leave_the_other_figures(tmp_path, monkeypatch):
    def make(name, *rest, **more):
        if name == "this, masked attention":
            raise AssertionError
        return systems.this_system(name, *rest, **more)

    monkeypatch.setattr(speed, "this_system", make)
    monkeypatch.setattr(hardware.shutil, "which", lambda name: None)
    out, name = tmp_path / "out", "speed-albert-base-128-bf16"
    assert gpu.main([*TINY, "--out", str(out), "--here", name, "--only", "masked", "chunked", "this, compiled"]) == 1
    found = json.loads((out / f"{name}.json").read_text())
    assert [row.get("feature") for row in found["measurements"]] == [None, "transformers", "chunked_loss"]
    text = page.markdown(MACHINE | {"parts": {name: found}})
    for message in (
        "this, compiled: torch.compile needs a C compiler (gcc)",
        "this, masked attention: AssertionError()",
    ):
        assert message in found["error"]
        assert message in text


def test_the_outcome_of_each_test_is_read_from_what_pytest_prints():
    lines = [
        "tests/gpu/test_models.py::test_a[cpu] PASSED                   [ 25%]",
        "tests/gpu/test_models.py::test_b[cpu-a b] SKIPPED (no fp16 here)    [ 50%]",
        "tests/gpu/test_models.py::test_c FAILED                        [ 75%]",
        "tests/gpu/test_models.py::test_d ERROR                        [100%]",
        "FAILED tests/gpu/test_models.py::test_c - assert 1 == 2",
        "ERROR tests/gpu/test_models.py::test_d - ValueError: no",
    ]
    *_, last = outcomes(lines)
    assert last == {
        "test_a[cpu]": "passed",
        "test_b[cpu-a b]": "skipped: (no fp16 here)",
        "test_c": "failed: assert 1 == 2",
        "test_d": "failed: ValueError: no",
    }


def test_an_annotation_is_no_kernel():
    """torch notes the step of an optimizer on the GPU from its first kernel to its last."""

    def event(name, start, end, is_user_annotation=False):
        times = {"time_range": SimpleNamespace(start=start, end=end), "device_time_total": end - start}
        return SimpleNamespace(
            name=name, key=name, device_type=DeviceType.CUDA, is_user_annotation=is_user_annotation, **times
        )

    events = [event("Optimizer.step#Lamb.step", 0, 9e6, True), event("a", 0, 1e6), event("b", 8e6, 9e6)]
    found = summarise(events, 10.0)
    assert [row["name"] for row in found["kernels"]] == ["b", "a"]
    assert found["idle_seconds"] == pytest.approx(8.0)
