"""Random faults in one training on three hosts: a few of them, their plan, and the page of the hundred."""

import json
import os
from pathlib import Path

import pytest

from benchmarks.chaos import __main__ as chaos
from benchmarks.shared import texts
from benchmarks.shared.namespaces import REPOSITORY, what_is_missing
from tests.pipeline.workers import forked


@pytest.mark.slow
@pytest.mark.cluster
def test_a_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := what_is_missing():
        pytest.skip(reason)
    out = tmp_path / "chaos"

    def call(module: str, *words: object) -> None:
        variables = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        ended = forked.run_module(module, list(map(str, words)), REPOSITORY, variables, timeout=1500)
        assert ended.returncode == 0, ended.stdout + ended.stderr

    monkeypatch.setattr(texts, "call", call)  # what makes the data, without new interpreters
    kinds = ["a rank killed"]  # tests/cluster/test_elastic.py loses hosts
    status = chaos.main(["--faults", str(len(kinds)), "--kinds", *kinds, "--out", str(out)])
    assert status == 0, capfd.readouterr()
    result = json.loads((out / "chaos.json").read_text(encoding="utf-8"))
    assert [cost["kind"] for cost in result["costs"]] == kinds
    end = result["end"]
    assert end["differences"] == []
    assert end["weights_apart"] < end["weights_moved"] / 100
    assert "error: lost rank" in result["costs"][0]["line"]
    assert capfd.readouterr().out.count("noticed after") == len(kinds)
    assert chaos.main(["--faults", "2", "--out", str(out)]) == 2, "it has files"
