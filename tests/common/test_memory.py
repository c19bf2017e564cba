"""The memory that a process can still get."""

from pathlib import Path

import pytest

from common import memory


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_OWN_CGROUP", tmp_path / "cgroup")
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


def allow(group: Path, limit: str) -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name, text in (("memory.max", limit), ("memory.current", "10"), ("memory.stat", "inactive_file 0")):
        (group / name).write_text(f"{text}\n")


def test_a_limit_of_the_group_or_of_one_above_it_counts(system: Path) -> None:
    (system / "cgroup").write_text("1:name=systemd:/\n0::/slurm/job_7/step_0\n")  # a job of Slurm
    allow(system / "slurm" / "job_7", "5000")
    allow(system / "slurm" / "job_7" / "step_0", "max")
    assert memory.available_bytes() == 4990
    allow(system / "slurm" / "job_7" / "step_0", "3000")
    assert memory.available_bytes() == 2990
    (system / "cgroup").write_text("0::/docker/of-the-host\n")  # where the container's own group is the root
    allow(system, "1000")
    assert memory.available_bytes() == 990


def test_this_machine_says_something() -> None:
    available = memory.available_bytes()
    assert available is None or available > 0
