"""Too little memory that may be mapped, or room in /dev/shm for DeepSpeed's buffers: one line before the start."""

import json
import os
import re
import resource
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import deepspeed
import pytest

from common.errors import UserError
from pipeline.engine import ranks
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.test_pretrain import CONFIG, command

SOURCE = Path(deepspeed.__file__).parent / "ops" / "csrc" / "cpu" / "comm" / "shm.cpp"
JOB = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of two ranks on this host."""
    for name in ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)


def has_free(monkeypatch: pytest.MonkeyPatch, size: int, free: int) -> None:
    found = os.statvfs_result((4096, 4096, size // 4096, free // 4096, free // 4096, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: found)


def test_the_size_of_a_buffer_is_deepspeeds() -> None:
    source = SOURCE.read_text()
    large = re.search(r"#define MAX_BUF_SIZE (\d+) \* (\d+)", source)
    small = re.search(r"#define NAIVE_ALLREDUCE_THRESHOLD (\d+)", source)
    assert large is not None
    assert small is not None
    assert "char buffer[2 * NAIVE_ALLREDUCE_THRESHOLD + 2 * MAX_BUF_SIZE];" in source
    assert 2 * int(small[1]) + 2 * int(large[1]) * int(large[2]) + 8 == ranks.BUFFER_BYTES


MB = 1 << 20


@pytest.mark.parametrize(
    ("world_size", "size", "free", "message"),
    [
        (2, 64, 64, r"67 MB free, .* needs 139 MB there for 2 ranks .* --shm-size=133m"),
        (2, 133, 133, None),
        (2, 1024, 100, r"--shm-size=1057m"),  # others use the rest
        (1, 64, 2, None),  # one rank needs a page only
        (1, 64, 0, r"0 MB free, .* 2 MB there for 1 rank on"),
    ],
)
def test_too_little_room_is_a_line_with_the_size_that_is_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world_size: int, size: int, free: int, message: str | None
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(world_size))
    has_free(monkeypatch, size * MB, free * MB)
    with nullcontext() if message is None else pytest.raises(UserError, match=message):
        ranks.check_directory(tmp_path)


def test_the_buffers_of_a_killed_job_are_used_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / f"{ranks.buffer_prefix()}0").write_bytes(b"x" * (70 * MB))
    has_free(monkeypatch, 140 * MB, 70 * MB)
    ranks.check_directory(tmp_path)


def test_a_directory_that_is_missing_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="shm cannot be written, and DeepSpeed needs 139 MB"):
        ranks.check_directory(tmp_path / "shm")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 2),
        ({"MASTER_ADDR": "node1", "WORLD_SIZE": "16"}, 1),
        ({"MASTER_ADDR": "node1", "WORLD_SIZE": "16", "LOCAL_SIZE": "8"}, 8),
        ({"MASTER_ADDR": "node1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "4"}, 4),
    ],
)
def test_ranks_on_a_host(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: int) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ranks.ranks_on_host() == expected


@pytest.mark.parametrize("gigabytes", [0.7, 1.6])
def test_a_limit_below_what_a_rank_maps_is_a_line_before_a_library_is_loaded(gigabytes: float) -> None:
    limit = int(gigabytes * 1e9)
    ended = subprocess.run(
        [sys.executable, "-m", "pipeline.pretrain", "--output", "/nowhere"],
        env={**os.environ, "RANK": "0", "LOCAL_RANK": "0"}, cwd=REPOSITORY, capture_output=True, text=True,
        check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert ended.returncode == 2
    assert re.fullmatch(
        r"error: this process may map \d\.\d GB more of memory, and a rank needs at least 1\.7 GB; .*\n", ended.stderr
    )


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a /dev/shm of its own needs root")
def test_a_run_says_so_and_writes_nothing(corpus, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """In a mount namespace with another /dev/shm."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    words = list(map(str, command(corpus, config, tmp_path / "run", "--steps", "2", ranks=1)))
    script = 'mount -t tmpfs -o size=512k tmpfs /dev/shm && exec "$@"'
    environment = {name: value for name, value in os.environ.items() if name not in JOB}
    ended = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script, "bash", *words],
        cwd=REPOSITORY, env=environment | {"DS_ACCELERATOR": "cpu"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "/dev/shm has 0 MB free" in ended.stderr
    assert ended.returncode == 2
    assert not (tmp_path / "run").exists()
