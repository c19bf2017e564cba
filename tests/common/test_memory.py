"""The memory that a process can still get."""

from pathlib import Path

import pytest

from common import memory


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    return tmp_path


def test_the_smaller_limit_counts(system: Path) -> None:
    assert memory.available_bytes() is None
    (system / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   80 kB\n")
    assert memory.available_bytes() == 80 * 1024
    (system / "memory.max").write_text("70000\n")
    (system / "memory.current").write_text("50000\n")
    (system / "memory.stat").write_text("anon 20000\ninactive_file 10000\n")
    assert memory.available_bytes() == 30000
    (system / "memory.max").write_text("max\n")
    assert memory.available_bytes() == 80 * 1024


def test_this_machine_says_something() -> None:
    available = memory.available_bytes()
    assert available is None or available > 0
