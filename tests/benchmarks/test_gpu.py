"""`make gpu`: its parts work at a tiny size on the processor, it goes on where it ended, and its page is read."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import page, parts, profiled, runs, speed
from benchmarks.gpu.parts import PARTS, run_tests
from benchmarks.gpu.place import Place
from benchmarks.gpu.profiled import summarise
from benchmarks.shared import systems
from benchmarks.shared.measure import note_largest
from model import AlbertForPreTraining, ExecutionOptions
from pipeline.engine import hardware
from tests.model.examples import random_ids, tiny_config
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
        speed_part: ["masked", "one pair", "sums", "chunked", "this, compiled", "blocks, compiled", "dropout"],
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
    with_dropout = [row["system"] for row in measured if row["dropout"] == 0.1]
    assert with_dropout == ["this, dropout, all", "transformers, dropout", "transformers, compiled, dropout"]
    assert {row["dropout"] for row in measured} == {0.0, 0.1}
    assert found[speed_part]["matrix_product_sums"] == "fp32"
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
    assert all(0 < size < 100 for size in profile["largest"].values())
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


def test_a_variant_with_dropout_stands_beside_the_other_system_with_the_same(tmp_path, monkeypatch):
    compared = {}

    def compare(systems, *_, **__):
        rates = [system.model.config.hidden_dropout_prob for system in systems]
        compared[systems[0].name] = (systems[1].name, *rates)
        return [{"system": system.name, "speedup": 2.0} for system in systems]

    monkeypatch.setattr(speed, "compare", compare)
    place = Place(torch.device("cpu"), True, tmp_path, ("dropout", "sums"))
    *_, last = speed.measure(place, "albert-base", 128, "bf16")
    assert compared == {
        "this": ("transformers", 0.0, 0.0),
        "this, 16-bit sums": ("this", 0.0, 0.0),
        "this, dropout, all": ("this", 0.1, 0.0),
        "transformers, dropout": ("this, dropout, all", 0.1, 0.1),
        "transformers, compiled, dropout": ("this, dropout, all", 0.1, 0.1),
    }
    gains = {row["feature"]: row["gain"] for row in last["measurements"][1:]}
    assert gains["16_bit_sums"] == 2.0  # the variant has the feature
    assert gains["dropout"] == gains["dropout_compiled"] == 0.5  # "transformers" was twice as fast here


def test_outcomes_and_what_tests_record_are_in_the_part_and_on_the_page(tmp_path, monkeypatch):
    (tmp_path / "tests" / "gpu").mkdir(parents=True)
    (tmp_path / "tests" / "gpu" / "test_some.py").write_text(
        "import pytest\n"
        '@pytest.mark.parametrize("device", ["cpu"])\n'
        "def test_a(device, record_property):\n"
        '    record_property("largest", "31.5 of <x>")\n'
        '@pytest.mark.parametrize("device", ["cpu-a b"])\n'
        'def test_b(device): pytest.skip("no fp16 here")\n'
        "def test_c(): assert 1 == 2\n"
        "@pytest.fixture\n"
        'def broken(): raise ValueError("no")\n'
        "def test_d(broken): pass\n"
    )
    monkeypatch.setattr(parts, "REPOSITORY", tmp_path)
    *_, last = run_tests(Place(torch.device("cpu"), True, tmp_path), "some")
    assert last["tests"] == {
        "test_a[cpu]": "passed",
        "test_b[cpu-a b]": "skipped: (no fp16 here)",
        "test_c": "failed: assert 1 == 2",
        "test_d": "failed: ValueError: no",
    }
    assert last["recorded"] == {"test_a[cpu]": [{"name": "largest", "value": "31.5 of <x>"}]}
    lines = page.markdown(MACHINE | {"parts": {"tests-some": last}}).splitlines()
    assert "- tests-some: 1 of 4 passed" in lines
    assert "    - test_a[cpu]: largest 31.5 of <x>" in lines


def test_the_largest_output_of_a_module_is_that_of_all_passes():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh(), nn.LayerNorm(2))
    nn.init.eye_(model[0].weight)
    noted = note_largest(model)
    for row in ([1.0, -7.0], [2.0, 3.0]):
        model(torch.tensor([row]))
    assert float(noted["0"]) == 7.0
    assert float(noted["2"]) == pytest.approx(1.0, abs=1e-4)
    assert set(noted) == {"0", "2"}
    model(torch.tensor([[float("nan"), 0.0]]))
    assert noted["0"].isnan()


def test_the_largest_outputs_are_those_of_the_step_after_the_profile_also_if_layers_are_compiled(tmp_path):
    model = AlbertForPreTraining(tiny_config(), ExecutionOptions(compile=True, compile_backend="aot_eager"))
    engine = SimpleNamespace(module=model, device=torch.device("cpu"))
    profiling = profiled._profile(tmp_path / "out.json")
    next(profiling)
    for step in range(9):
        ids = random_ids(step, 2, 16)
        model(ids, masked_labels=ids)
        if step == profiled.FIRST + profiled.STEPS:  # the same pass again
            states = torch.stack(model.albert(ids).hidden_states[1:])
        profiling.send(engine)
    largest = json.loads((tmp_path / "out.json").read_text())["largest"]
    assert largest["encoder.feed_forward.0.layer_norm"] == float(states.detach().abs().max())
    assert {"encoder.feed_forward.0.activation", "encoder.feed_forward.0.layer_norm"} <= largest.keys()
    assert {"encoder.attention.0.dense", "embeddings.layer_norm"} <= largest.keys()


def test_the_page_tells_the_largest_outputs_and_what_the_product_is():
    profile = {"model": "albert-xxlarge", "precision": "fp16", "dropout": 0.0, "seconds": 1.0, "idle_seconds": 0.0}
    profile |= {"host_waits": 0, "host_wait_seconds": 0.0, "kernels": [], "largest": {"a": 3.0, "b": 1234.5}}
    row = {"model": "albert-xxlarge", "precision": "fp16", "dropout": 0.1, "system": "this", "memory_mib": 1.0}
    product = {"matrix_product_tflops": 700.0, "copy_gigabytes_per_second": 3000.0, "state": {}}
    parts_of_page = {"profile-albert-xxlarge": {"profile": profile}, "speed": {"measurements": [row]} | product}
    text = page.markdown(MACHINE | {"parts": parts_of_page})
    assert text.index("| b | 1,234.50 |") < text.index("| a | 3.00 |")
    assert "with sums in fp32 (fp16 700.00 TFLOP/s)" in text
    header, cells = (line for line in text.splitlines() if line.startswith(("| model | length", "| albert-xxlarge")))
    assert header.split("|").index(" dropout ") == cells.split("|").index(" 0.10 ")


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
