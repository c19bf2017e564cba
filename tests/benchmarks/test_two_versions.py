"""The comparison of two versions: this one beside itself, and mistakes in one line."""

from pathlib import Path

import pytest

from benchmarks import two_versions


@pytest.mark.slow
def test_a_version_beside_itself() -> None:
    compared = two_versions.compare(two_versions.HERE, two_versions.HERE, 3, "albert-tiny", "float32", "1", "16")
    assert compared.same_loss
    assert compared.seconds > 0
    low, high = compared.middle_half
    assert low <= compared.ratio <= high


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert two_versions.main(["--before", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} is no working tree of this repository; make one")
    assert two_versions.main(["--before", str(two_versions.HERE), "--rounds", "1"]) == 2
    assert capsys.readouterr().err.startswith("error: give --rounds of 2 or more")
