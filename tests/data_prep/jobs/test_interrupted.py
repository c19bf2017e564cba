"""Jobs that are killed keep finished units, but for `vocab`, which begins again; all end with equal bytes."""

import bz2
from pathlib import Path

import pytest

from tests.data_prep import corpora

pytestmark = pytest.mark.slow

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


def begun(log: Path) -> list[str]:
    """Returns the pid of the process that began each unit so far."""
    return log.read_text().split() if log.exists() else []


@pytest.mark.parametrize(("job", "ranks"), [("extract", 3), ("vocab", 2), ("shards", 3)])
def test_a_killed_job_goes_on(multistream, documents_directory, vocabulary_file, tmp_path, job, ranks):
    documents = ["--documents", documents_directory]
    words: list[str | Path] = {
        "extract": ["--source", "wikipedia", "--input", multistream, "--unit-megabytes", "1"],
        "vocab": [*documents, "--size", "300"],
        "shards": [*documents, "--vocab", vocabulary_file, "--max-seq-length", "64", "--dedup", "near"],
    }[job]
    name = "v.model" if job == "vocab" else "out"
    whole, killed, log = tmp_path / "whole" / name, tmp_path / "killed" / name, tmp_path / "log"
    for out in (whole, killed):
        out.parent.mkdir()
    command = ["-m", "tests.data_prep.small_units", job, *words, "--out"]
    assert corpora.run([*command, whole], UNIT_LOG=str(log)).returncode == 0
    units = len(begun(log))
    assert units >= 6
    log.unlink()
    process = corpora.start([*command, killed], ranks, UNIT_LOG=str(log), SECONDS_A_UNIT="0.1")
    corpora.wait_until(lambda: len(begun(log)) >= units // 2, process)
    assert corpora.mpirun_files(process).is_dir()
    corpora.kill(process)
    assert not corpora.mpirun_files(process).exists()  # it would keep a later mpirun with the same PID from starting
    result = corpora.run([*command, killed], ranks, UNIT_LOG=str(log))
    assert result.returncode == 0, result.stderr
    assert len(set(begun(log))) > ranks  # the ranks shared the units
    # A kill costs each rank the unit that it was at, and no more.
    assert job == "vocab" or len(begun(log)) <= units + ranks
    assert corpora.contents(killed.parent) == corpora.contents(whole.parent)
