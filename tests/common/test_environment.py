"""Numbers in the environment that a launcher, or a person, has set; and the memory that a process can still get."""

from pathlib import Path

import pytest

from common import environment
from common.environment import whole_number
from common.errors import UserError

WRONG = ("", "x", "-1", "1.5", "1e3", " 1", "²", "9" * 5000, str(2**31))


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_number_is_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RANK", text)
    with pytest.raises(UserError, match=r"RANK is .* no whole number from 0 to 2147483647") as raised:
        whole_number("RANK")
    assert len(str(raised.value)) < 300


def test_a_number_in_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert whole_number("MASTER_PORT", 1, 65535) == 29500
    monkeypatch.setenv("MASTER_PORT", "99999")
    with pytest.raises(UserError, match="'99999', which is no whole number from 1 to 65535"):
        whole_number("MASTER_PORT", 1, 65535)
    monkeypatch.delenv("MASTER_PORT")
    assert whole_number("MASTER_PORT", default=7) == 7
    with pytest.raises(UserError, match="is not set"):
        whole_number("MASTER_PORT")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(environment, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(environment, "_CGROUP", tmp_path)
    monkeypatch.setattr(environment, "_OWN_CGROUP", tmp_path / "cgroup")
    return tmp_path


def test_the_smaller_limit_counts(system: Path) -> None:
    assert environment.available_bytes() is None
    (system / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   80 kB\n")
    assert environment.available_bytes() == 80 * 1024
    (system / "memory.max").write_text("70000\n")
    (system / "memory.current").write_text("50000\n")
    (system / "memory.stat").write_text("anon 20000\ninactive_file 10000\n")
    assert environment.available_bytes() == 30000
    (system / "memory.max").write_text("max\n")
    assert environment.available_bytes() == 80 * 1024


def allow(group: Path, limit: str) -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name, text in (("memory.max", limit), ("memory.current", "10"), ("memory.stat", "inactive_file 0")):
        (group / name).write_text(f"{text}\n")


def test_a_limit_of_the_group_or_of_one_above_it_counts(system: Path) -> None:
    (system / "cgroup").write_text("1:name=systemd:/\n0::/slurm/job_7/step_0\n")  # a job of Slurm
    allow(system / "slurm" / "job_7", "5000")
    allow(system / "slurm" / "job_7" / "step_0", "max")
    assert environment.available_bytes() == 4990
    allow(system / "slurm" / "job_7" / "step_0", "3000")
    assert environment.available_bytes() == 2990
    (system / "cgroup").write_text("0::/docker/of-the-host\n")  # where the container's own group is the root
    allow(system, "1000")
    assert environment.available_bytes() == 990
