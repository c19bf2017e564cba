"""Jobs that are killed keep finished units, and end with equal bytes."""

import bz2
import random
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.data_prep import corpora

pytestmark = pytest.mark.slow

JOB = ["-m", "tests.data_prep.small_units"]
PAGE = "<page><title>T{0}</title><ns>0</ns><id>{0}</id><revision><text>{1}</text></revision></page>\n"
PAGES = 120


@pytest.fixture(scope="module")
def multistream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes an export of many bzip2 streams of ten pages, with its index, like Wikipedia's dumps."""
    directory = tmp_path_factory.mktemp("dump")
    sentences = corpora.make_sentences(3000)
    pages = [PAGE.format(n, " ".join(sentences[n * 25 : n * 25 + 25])) for n in range(PAGES)]
    content, index = bz2.compress(b"<mediawiki>\n"), []
    for first in range(0, PAGES, 10):
        index += [f"{len(content)}:{n}:T{n}\n" for n in range(first, first + 10)]
        content += bz2.compress("".join(pages[first : first + 10]).encode())
    (directory / "wiki-multistream.xml.bz2").write_bytes(content + bz2.compress(b"</mediawiki>\n"))
    (directory / "wiki-multistream-index.txt.bz2").write_bytes(bz2.compress("".join(index).encode()))
    return directory


def extraction(multistream: Path, out: Path) -> list[str | Path]:
    return [*JOB, "extract", "--source", "wikipedia", "--input", multistream, "--out", out, "--unit-megabytes", "1"]


def contents(path: Path) -> dict[str, bytes]:
    """Returns every file of a directory; for a vocabulary its three files."""
    if path.is_dir():
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return {suffix: path.with_suffix(suffix).read_bytes() for suffix in (".model", ".vocab", ".json")}


def begun(log: Path) -> list[str]:
    """Returns the pid of the process that began each unit so far."""
    return log.read_text().split() if log.exists() else []


def wait_for_units(process: subprocess.Popen[str], log: Path, count: int) -> bool:
    """Waits until `count` units have begun. Returns False if the job ended before."""
    deadline = time.monotonic() + 300
    while len(begun(log)) < count:
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return True


@pytest.mark.parametrize(("job", "ranks"), [("extract", 3), ("vocab", 2), ("shards", 3)])
def test_killed_again_and_again(
    multistream: Path, documents_directory: Path, vocabulary_file: Path, tmp_path: Path, job: str, ranks: int
) -> None:
    def command(out: Path) -> Sequence[str | Path]:
        if job == "extract":
            return extraction(multistream, out)
        if job == "vocab":
            return [*JOB, "vocab", "--documents", documents_directory, "--out", out, "--size", "300"]
        arguments = ["--documents", documents_directory, "--vocab", vocabulary_file, "--max-seq-length", "64"]
        return [*JOB, "shards", *arguments, "--out", out]

    name = "v.model" if job == "vocab" else "out"
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole, killed, log = tmp_path / "whole" / name, tmp_path / "killed" / name, tmp_path / "log"
    assert corpora.run(command(whole), UNIT_LOG=str(log)).returncode == 0
    units = len(begun(log))
    assert units >= 6
    log.unlink()
    moments, kills = random.Random(job), 0
    for _ in range(2):
        process = corpora.start(command(killed), ranks, UNIT_LOG=str(log), SECONDS_A_UNIT="0.1")
        if wait_for_units(process, log, len(begun(log)) + moments.randint(1, units // 2)):
            time.sleep(moments.uniform(0, 0.15))  # any moment of a unit
            kills += 1
        corpora.kill(process)
    result = corpora.run(command(killed), ranks, UNIT_LOG=str(log))
    assert result.returncode == 0, result.stderr
    assert kills > 0
    assert len(begun(log)) <= units + kills * ranks  # a kill costs each rank the unit that it was at, and no more
    assert contents(killed) == contents(whole)


def test_every_rank_reads_a_multistream_dump(multistream: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {"UNIT_LOG": str(log), "SECONDS_A_UNIT": "0.2"}
    result = corpora.run(extraction(multistream, tmp_path / "out"), 2, **environment)
    assert result.returncode == 0, result.stderr
    assert len(set(begun(log))) == 2
    assert sorted(int(document.id) for document in corpora.read_documents([tmp_path / "out"])) == list(range(PAGES))
