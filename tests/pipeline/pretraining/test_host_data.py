"""Each host checks every file of the shards, or copies them to its own disk."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from data_prep.format.shard_manifest import MANIFEST, read_manifest
from data_prep.format.shards import block_checksums
from pipeline.pretraining import host_data
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.staging import flip_a_bit, prepare_in_many_ways, train, train_on_changed


class OneRank:
    """The control group of a run with one rank."""

    rank = 0

    def all_or_raise(self, work: Callable[[], Any]) -> Any:
        return work()

    def broadcast(self, value: Any) -> Any:
        return value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("staged")


@pytest.fixture(scope="module")
def found(corpus: Any, folder: Path) -> dict[str, Any]:
    damaged = folder / "damaged"
    shutil.copytree(corpus.train, damaged)
    flip_a_bit(damaged / read_manifest(damaged).files[-1].name)
    answers: dict[str, Any] = processes.run(
        2, prepare_in_many_ways, corpus.train, damaged, folder / "work", scratch=_made(folder / "work")
    )
    return answers


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.fixture
def files(corpus: Any) -> list[str]:
    return [file.name for file in read_manifest(corpus.train).files]


@pytest.mark.slow
def test_the_first_rank_of_each_host_reads_all_files(found: dict[str, Any], corpus: Any, files: list[str]) -> None:
    assert len(files) == 3
    assert found["in place"] == [(corpus.train, sorted(files), []), (corpus.train, [], [])]
    assert found["on two hosts"] == [(corpus.train, sorted(files), [])] * 2


@pytest.mark.slow
def test_every_rank_knows_the_checksums_of_all_rows(found: dict[str, Any], corpus: Any) -> None:
    expected = {
        file.name: block_checksums(corpus.train / file.name, file.rows).tolist()
        for file in read_manifest(corpus.train).shards()
    }
    assert expected
    assert found["checksums"] == [expected] * 4  # of both ranks on one host, and of two hosts with a rank each


@pytest.mark.slow
def test_a_byte_that_changes_during_training_ends_the_run_with_file_and_row(corpus: Any, tmp_path: Path) -> None:
    changed = tmp_path / "shards"
    shutil.copytree(corpus.train, changed)
    run = Run("changed", 1, 6)
    command = [str(changed) if word == str(corpus.train) else word for word in run.command(corpus, tmp_path)]
    assert str(changed) in command
    (end,) = processes.run(1, train_on_changed, [command], changed / "shard-00000.arrow", scratch=tmp_path)
    assert end.status == 2
    assert end.stderr.count("\n") == 1
    assert f"{changed}/shard-00000.arrow has changed since it was checked at the start: the 16 rows that" in end.stderr


@pytest.mark.slow
def test_a_stage_is_copied_once_and_checked_at_every_start(
    found: dict[str, Any], corpus: Any, folder: Path, files: list[str]
) -> None:
    (place, _, first), (_, _, second) = found["new"]
    assert place.parent == folder / "work" / "stage"
    assert (place.parent / ".albert-pretraining.json").exists()
    assert (first, second) == (sorted([*files, MANIFEST]), [])
    assert found["again"] == [(place, sorted(files), [MANIFEST]), (place, [], [])]
    assert [copied for _, _, copied in found["copy damaged"]] == [[MANIFEST, "shard-00000.arrow"], []]
    for name in [*files, MANIFEST]:
        assert (place / name).read_bytes() == (corpus.train / name).read_bytes()


@pytest.mark.slow
def test_all_ranks_are_told_why_nothing_is_staged(found: dict[str, Any], folder: Path, files: list[str]) -> None:
    work = folder / "work"
    for name, message in {
        "damaged": f"{folder / 'damaged'} is damaged: the content of {files[-1]} has changed; run `python -m data_prep",
        "foreign": f"{work / 'foreign'} is not empty and has no .albert-pretraining.json",
    }.items():
        (told, _, _), (other, _, _) = found[name]
        assert told == other
        assert told.startswith(message)
    assert not list((work / "other").glob(f"*/{MANIFEST}"))
    assert [path.name for path in (work / "foreign").iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_a_run_on_a_stage_has_the_losses_of_one_on_the_shards(corpus: Any, folder: Path) -> None:
    flags = ("--steps", "2", "--log-interval", "1", "--eval-interval", "2")
    runs = [
        Run("in place", 1, 6, flags=flags),
        Run("on a stage", 1, 6, flags=(*flags, "--stage", str(folder / "disk"))),
    ]
    ends = processes.run(1, train, [run.command(corpus, folder) for run in runs], scratch=folder)
    assert [end.status for end in ends] == [0, 0], ends
    assert "copying the shards to" in ends[1].stdout
    losses = [
        [json.loads(line).get("loss") for line in (folder / run.name / "metrics.jsonl").read_text().splitlines()]
        for run in runs
    ]
    assert losses[0] == losses[1]
    assert len(list((folder / "disk").glob(f"*/{MANIFEST}"))) == 2  # the training and the held-out shards


def test_sets_of_one_name_share_a_stage_behind_a_link(corpus: Any, tmp_path: Path) -> None:
    sets, link, control = [tmp_path / "a" / "x", tmp_path / "b" / "x"], tmp_path / "link", OneRank()
    shutil.copytree(corpus.train, sets[0])
    shutil.copytree(corpus.held_out, sets[1])
    (tmp_path / "disk").mkdir()
    link.symlink_to(tmp_path / "disk")
    found = host_data.check_on_host(sets, link, control, True, True)  # type: ignore[arg-type]
    places = [host_set.place for host_set in found]
    assert [read_manifest(place) for place in places] == [read_manifest(one) for one in sets]
    assert {place.parent for place in places} == {tmp_path / "disk"}
    (places[1] / MANIFEST).unlink()
    (places[1] / MANIFEST).mkdir()
    with pytest.raises(UserError, match=f"{MANIFEST} cannot be copied to {places[1]} on host .*: Is a directory"):
        host_data.check_on_host(sets, link, control, True, True)  # type: ignore[arg-type]


def test_without_verify_only_sizes_are_looked_at(corpus: Any, tmp_path: Path) -> None:
    place = tmp_path / "set"
    shutil.copytree(corpus.train, place)
    flip_a_bit(place / "shard-00000.arrow")
    (unchecked,) = host_data.check_on_host([place], None, OneRank(), True, verify=False)  # type: ignore[arg-type]
    assert (unchecked.place, unchecked.checksums) == (place, {})
    with pytest.raises(UserError, match=r"the content of shard-00000\.arrow has changed"):
        host_data.check_on_host([place], None, OneRank(), True, verify=True)  # type: ignore[arg-type]
    (place / "shard-00000.arrow").unlink()
    with pytest.raises(UserError, match=r"shard-00000\.arrow is missing"):
        host_data.check_on_host([place], None, OneRank(), True, verify=False)  # type: ignore[arg-type]
