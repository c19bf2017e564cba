"""Work units in one process and under a real mpirun: which count as finished, and what becomes of other runs."""

import contextlib
import json
import os
import pty
import signal
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import environment
from common.errors import UserError
from common.files.checksums import describe_file
from data_prep import mpi
from data_prep.mpi import Ledger, UnitRecord, begin_job, end_job
from tests.data_prep import corpora
from tests.data_prep.mpi_job import Squared


@pytest.mark.parametrize(
    ("variables", "size", "rank"),
    [
        ({}, 1, 0),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3"}, 4, 3),
        ({"PMI_SIZE": "2", "PMI_RANK": "1"}, 2, 1),
        ({"PMIX_RANK": "5", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8"}, 8, 5),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8"}, None, 1),
    ],
)
def test_the_launcher_is_known_from_its_environment(variables, size, rank, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("OMPI_COMM", "PMI", "MPI_", "SLURM_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.launched_rank() == rank
    if size is None:  # tasks without MPI would all do the whole job
        with pytest.raises(UserError, match="--mpi=pmix"):
            environment.launched_size()
    else:
        assert environment.launched_size() == size


def test_alone_the_largest_unit_goes_first_and_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    done = []

    def work(index: int, unit: str) -> UnitRecord:
        done.append(unit)
        if unit == "a" and len(done) == 3:
            raise KeyboardInterrupt
        return Squared(square=index, rank=0, pid=0, files=[])

    ledger = Ledger(tmp_path, Squared)
    with pytest.raises(KeyboardInterrupt), mpi.launch() as ranks:
        ranks.run(["a", "b", "c"], work, ledger, sizes=[1, 3, 2], description="test")
    records = mpi.Ranks().run(["a", "b", "c"], work, ledger, sizes=[1, 3, 2], description="test")
    assert done == ["b", "c", "a", "a"]
    assert [record.square for record in records] == [0, 1, 2]
    assert "mpi4py" not in sys.modules


def test_a_record_that_names_a_file_outside_does_not_count(tmp_path: Path) -> None:
    """The files of a job that wrote nothing of use are deleted."""
    (tmp_path / "of_a_person").write_text("mine")
    (tmp_path / "out").mkdir()
    ledger = Ledger(tmp_path / "out", UnitRecord)
    for name, is_found in (("../of_a_person", False), ("own", True)):
        (tmp_path / "out" / "own").write_text("unit")
        ledger.write(0, UnitRecord(files=[replace(describe_file(tmp_path / "out" / "own"), name=name)]))
        assert (0 in ledger.read_finished(1)) == is_found


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 9))
def test_units_are_dealt_evenly(sizes: list[int], ranks: int) -> None:
    dealt = mpi.deal(dict(enumerate(sizes)), ranks)
    assert sorted(index for indices in dealt for index in indices) == list(range(len(sizes)))
    loads = [sum(max(1, sizes[index]) for index in indices) for indices in dealt]
    assert max(loads) - min(loads) <= max([1, *sizes])


def test_ranks_share_the_units(tmp_path: Path) -> None:
    result = corpora.run(["-m", "tests.data_prep.mpi_job", tmp_path, "plain"], ranks=3)
    assert result.returncode == 0, result.stderr
    records = json.loads(result.stdout)
    assert [record["square"] for record in records] == [n * n for n in range(20)]
    assert {record["rank"] for record in records} == {0, 1, 2}  # rank 0 works too
    assert "job: 210 of 210 (100 %)" in result.stderr  # bytes, from rank 0


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("error", 1, "RuntimeError: the seventh seal"),
        ("panic", 1, "PanicException: the seventh seal"),
        ("root", 2, "error: nothing to work on; bring something"),
    ],
)
def test_a_rank_that_fails_ends_the_job_with_its_reason(tmp_path: Path, kind: str, status: int, reason: str) -> None:
    result = corpora.run(["-m", "tests.data_prep.mpi_job", tmp_path, kind], ranks=2)
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr.count(reason) == 1
    assert ("Traceback" in result.stderr) == (kind != "root")


def test_an_interrupted_rank_ends_the_job(tmp_path: Path) -> None:
    process = corpora.start(["-m", "tests.data_prep.mpi_job", tmp_path, "endless"], ranks=2)
    records = corpora.wait_until(lambda: sorted((tmp_path / ".units").glob("[0-9]*.json")), process)
    os.kill(json.loads(records[0].read_text())["pid"], signal.SIGINT)
    _, err = process.communicate(timeout=1500)
    assert process.returncode == 130
    assert "Traceback" not in err


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_ctrl_c_at_mpirun_ends_the_ranks(tmp_path: Path) -> None:
    options = ["-n", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    process, terminal = pty.fork()
    if process == 0:
        try:
            job = [sys.executable, "-m", "tests.data_prep.mpi_job", str(tmp_path), "endless"]
            os.execvp("mpirun", ["mpirun", *options, *job])
        finally:
            os._exit(127)
    mpirun = psutil.Process(process)
    ranks: list[psutil.Process] = []
    try:
        corpora.wait_until(lambda: has_ended(mpirun) or list((tmp_path / ".units").glob("[0-9]*.json")))
        ranks = [child for child in mpirun.children() if "OMPI_COMM_WORLD_RANK" in child.environ()]
        assert len(ranks) == 2
        os.write(terminal, b"\x03")
        corpora.wait_until(lambda: all(map(has_ended, ranks)))
    finally:
        for left in [*ranks, mpirun]:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        os.waitpid(process, 0)
        os.close(terminal)


def begun(output: Path, options: dict[str, int]) -> Ledger[Squared]:
    output.mkdir(exist_ok=True)
    begin_job(output, options)
    return Ledger(output, Squared, output / mpi.UNITS)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_run_that_finished_nothing_gives_way_to_another(tmp_path: Path) -> None:
    begun(tmp_path / "out", {"seed": 0})
    (tmp_path / "out" / mpi.UNITS / "pairs").mkdir()  # intermediate results of the other options
    (tmp_path / "out" / ".shard-00000.arrow.99999.tmp").write_text("half")
    (tmp_path / "out" / "notes.tmp").touch()  # a person's
    begun(tmp_path / "out", {"seed": 1})
    assert json.loads((tmp_path / "out" / mpi.UNITS / "options.json").read_text())["options"] == {"seed": 1}
    assert names(tmp_path / "out") == [mpi.UNITS, "notes.tmp"]
    assert names(tmp_path / "out" / mpi.UNITS) == ["options.json"]


def test_a_finished_unit_of_an_intermediate_stage_counts(tmp_path: Path) -> None:
    begun(tmp_path / "out", {"seed": 0})
    unit = tmp_path / "out" / mpi.UNITS / "fingerprints" / "000000.json"
    unit.parent.mkdir()
    unit.write_text("{}")
    with pytest.raises(UserError, match="seed is 0 there, 1 was asked for"):
        begun(tmp_path / "out", {"seed": 1})
    assert unit.exists()


def test_a_directory_that_no_job_made_is_never_deleted(tmp_path: Path) -> None:
    end_job(tmp_path)
    (tmp_path / "theirs" / mpi.UNITS).mkdir(parents=True)
    (tmp_path / "theirs" / mpi.UNITS / "options.json").write_text("{}")
    end_job(tmp_path / "theirs")
    with pytest.raises(UserError, match="holds no run to continue"):
        begun(tmp_path / "theirs", {})
    begun(tmp_path / "out", {})
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / mpi.UNITS).symlink_to(tmp_path / "out" / mpi.UNITS)
    end_job(tmp_path / "linked")
    assert (tmp_path / "theirs" / mpi.UNITS / "options.json").read_text() == "{}"
    assert (tmp_path / "out" / mpi.UNITS / "options.json").exists()


def test_a_file_of_another_size_is_work_to_be_done_again(tmp_path: Path) -> None:
    ledger, path = begun(tmp_path / "out", {}), tmp_path / "out" / "000000.npy"
    path.write_text("abc")
    record = Squared(square=1, rank=0, pid=0, files=[describe_file(path)])
    ledger.write(0, record)
    assert ledger.read_finished(1) == {0: record}
    path.write_text("abcd")
    assert ledger.read_finished(1) == {}
    end_job(tmp_path / "out", record.files)
    assert names(tmp_path / "out") == []


def test_damage_is_one_line_or_work_to_be_done_again(tmp_path: Path) -> None:
    ledger, wrong = begun(tmp_path, {"seed": 0}), '{"square": "1", "rank": 0, "pid": 0, "files": []}'
    for record in ('{"square": 1', wrong, wrong.replace('"1"', "1").replace("[]", '[{"name": "a"}]')):
        (tmp_path / mpi.UNITS / "000000.json").write_text(record)
        assert ledger.read_finished(1) == {}
    for content in ("{", "{}"):
        (tmp_path / mpi.UNITS / "options.json").write_text(content)
        with pytest.raises(UserError, match="holds no run to continue"):
            begun(tmp_path, {"seed": 0})
    assert (tmp_path / mpi.UNITS / "000000.json").exists()
