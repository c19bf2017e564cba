"""The mirror of a run, with a real S3 server. What a training run makes of it is tested with pre-training."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import UserError
from pipeline.checkpoint import mirror, retention
from pipeline.checkpoint.checkpoint_manifest import STATE, CheckpointManifest
from pipeline.checkpoint.files import write_state
from pipeline.checkpoint.mirror import Mirror, restore
from tests.object_store import ObjectStore


@pytest.fixture
def url(s3: ObjectStore) -> str:
    return f"s3://{s3.make_bucket()}/run"


def save(run: Path, step: int, text: str = "", keep: int = 2) -> None:
    """Makes a checkpoint, as training does."""
    tag = run / "checkpoints" / retention.tag_name(step)
    retention.make_temporary(tag)
    temporary = retention.temporary_of(tag)
    manifest = CheckpointManifest(step, None, {STATE: write_state(temporary, text or f"state {step}")}, {})
    retention.publish(tag, manifest)
    retention.prune(run / "checkpoints", keep, tag)


def make_run(run: Path, *steps: int) -> Path:
    run.mkdir()
    for step in steps:
        save(run, step)
    (run / "settings.json").write_text("{}")
    (run / "metrics.jsonl").write_text(f"{steps}\n")
    (run / "tensorboard").mkdir()
    (run / "tensorboard" / "events").write_bytes(b"events")
    return run


def content(run: Path) -> dict[str, bytes]:
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def held(s3: ObjectStore, url: str) -> dict[str, bytes]:
    """The objects of a mirror."""
    bucket = url.split("/")[2]
    return {name.removeprefix("run/"): body for name, body in s3.objects(bucket, "run/").items()}


def checkpoints_in(names: Iterator[str] | dict[str, bytes]) -> set[str]:
    return {name.split("/")[1] for name in names if name.endswith("manifest.json")}


def test_a_run_is_restored_as_it_was(
    s3: ObjectStore, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", 1, 2, 3)
    uploads = Mirror(run, url)
    uploads.sync()
    assert checkpoints_in(held(s3, url)) == {"step-00000002", "step-00000003"}
    first = [path for method, path in s3.requests if method == "PUT"]
    assert first[-1].endswith("/manifest.json")
    save(run, 4)
    (run / "metrics.jsonl").write_text("longer\n")
    (run / "export").mkdir()
    (run / "export" / "model").write_bytes(b"model")
    (run / "done").write_text("4\n")
    s3.requests.clear()
    uploads.sync()
    changes = [(method, path.partition("/run/")[2]) for method, path in s3.requests if method in ("PUT", "DELETE")]
    new = [f"checkpoints/step-00000004/{name}" for name in (STATE, "manifest.json")]
    old = [f"checkpoints/step-00000002/{name}" for name in ("manifest.json", STATE)]
    assert [name for method, name in changes if method == "PUT"] == [
        new[0],
        "export/model",
        "metrics.jsonl",
        new[1],
        "done",
    ]
    assert changes[-2:] == [("DELETE", name) for name in old]

    for rank in (0, 1):
        restore(tmp_path / "other", url, rank)
    assert content(tmp_path / "other") == content(run)
    said = f"the run in {url} is finished, and {tmp_path / 'other'} is a copy of it now; another run needs another"
    assert capsys.readouterr().out.count(said) == 1
    restore(tmp_path / "other", url, 0)  # of a run that is done: uploads what is new
    # A run that goes on is not done.
    (run / "done").unlink()
    Mirror(run, url).sync()
    assert "done" not in held(s3, url)
    # An older copy of the run removes no checkpoint.
    save(run, 5)
    Mirror(run, url).sync()
    Mirror(tmp_path / "other", url).sync()
    assert "step-00000005" in checkpoints_in(held(s3, url))


def test_a_kill_during_an_upload_leaves_the_checkpoint_before(s3: ObjectStore, url: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 1)
    Mirror(run, url).sync()
    save(run, 2)
    arrived, ends = threading.Event(), threading.Event()

    def hold(method: str, path: str) -> int | None:
        if (method, path.endswith("step-00000002/state.json")) != ("PUT", True):
            return None
        arrived.set()
        ends.wait()
        return 503

    code = "import sys; from pipeline.checkpoint.mirror import *; Mirror(Path(sys.argv[1]), sys.argv[2]).sync()"
    with s3.failing(hold), subprocess.Popen([sys.executable, "-c", code, run, url]) as process:
        assert arrived.wait(120)
        process.kill()
        process.wait()
        ends.set()
    assert checkpoints_in(held(s3, url)) == {"step-00000001"}
    restore(tmp_path / "other", url, 0)
    assert {path.name for path in retention.tags(tmp_path / "other" / "checkpoints")} == {"step-00000001"}
    # The same run goes on from its own directory, and uploads the rest.
    restore(run, url, 0)
    Mirror(run, url).sync()
    assert checkpoints_in(held(s3, url)) == {"step-00000001", "step-00000002"}


def test_a_store_that_fails_costs_a_line(s3: ObjectStore, url: str, tmp_path: Path) -> None:
    run, lines = make_run(tmp_path / "run", 1), []
    failed = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        failed.set()

    uploads = Mirror(run, url, say)
    with s3.failing(lambda method, path: 403):
        uploads.wake()
        assert failed.wait(60)
        for step in (2, 3, 4):
            save(run, step)
            uploads.wake()
    statuses = [500, 503]
    with s3.failing(lambda method, path: statuses.pop() if statuses and method == "PUT" else None):
        uploads.upload_rest(lambda: None)
    assert not statuses
    assert len(lines) == 1
    assert lines[0].startswith("--mirror: s3://bucket")
    assert "access is denied" in lines[0]
    assert lines[0].endswith("training goes on, and the upload is tried again")
    assert checkpoints_in(held(s3, url)) == {"step-00000003", "step-00000004"}, "not what was deleted meanwhile"


def test_two_runs_on_one_prefix(s3: ObjectStore, url: str, tmp_path: Path) -> None:
    run, other = make_run(tmp_path / "run", 1), make_run(tmp_path / "other", 1)
    Mirror(run, url).sync()
    with pytest.raises(UserError, match=r"holds another run than .*other; choose another --mirror"):
        Mirror(other, url)


@pytest.mark.parametrize("identity", [None, b"{}", b'{"run": null}'])
def test_what_another_tool_has_put_there_stays(
    s3: ObjectStore, url: str, tmp_path: Path, identity: bytes | None
) -> None:
    bucket, run = url.split("/")[2], make_run(tmp_path / "run", 5)
    s3.put(bucket, "run/checkpoints/step-00000001/manifest.json", b"of another run")
    if identity is not None:
        s3.put(bucket, f"run/{mirror.MIRROR}", identity)
    before = held(s3, url)
    for claim in (lambda: Mirror(run, url), lambda: restore(tmp_path / "new", url, 0)):
        with pytest.raises(UserError, match="so it is no mirror; choose an empty"):
            claim()
    assert held(s3, url) == before
    assert not (tmp_path / "new").exists()


def test_a_mirror_deletes_only_what_saves_have_written(s3: ObjectStore, url: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 1, 2)
    uploads = Mirror(run, url)
    uploads.sync()
    s3.put(url.split("/")[2], "run/checkpoints/step-00000001/notes.txt", b"a person's")
    save(run, 3)
    uploads.sync()
    assert held(s3, url)["checkpoints/step-00000001/notes.txt"] == b"a person's"
    assert checkpoints_in(held(s3, url)) == {"step-00000002", "step-00000003"}


def test_a_missing_bucket_is_found_before_anything_is_written(s3: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such bucket"):
        restore(tmp_path / "run", "s3://no-such-bucket/a", 0)


def test_a_restore_writes_over_nothing(url: str, tmp_path: Path) -> None:
    run, other = make_run(tmp_path / "run", 1), tmp_path / "other"
    (run / "run.sh").write_text("old")
    Mirror(run, url).sync()
    other.mkdir()
    (other / "metrics.jsonl").write_text("mine")
    with pytest.raises(UserError, match=r"holds metrics\.jsonl and no run"):
        restore(other, url, 0)
    assert content(other) == {"metrics.jsonl": b"mine"}
    (other / "metrics.jsonl").rename(other / "run.sh")
    restore(other, url, 0)
    assert (other / "run.sh").read_text() == "mine"
    assert (other / "settings.json").exists()


def test_an_empty_place_is_a_new_run(s3: ObjectStore, url: str, tmp_path: Path) -> None:
    for rank in (0, 1):
        restore(tmp_path / "run", url, rank)
        restore(tmp_path / "run", None, rank)
    assert not (tmp_path / "run").exists()
    s3.put(url.split("/")[2], f"run/{mirror.MIRROR}", b"1")
    with pytest.raises(UserError, match=r"mirror\.json"):
        restore(tmp_path / "run", url, 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("ftp://a/b", "URLs have the form"),
        ("s3://", "URLs have the form"),
        ("gs://bucket/a", "install gcsfs .*; install the extra s3, gcs or azure"),
        ("s3://no-such-bucket/a", "there is no such bucket or object"),
    ],
)
def test_a_wrong_url_is_one_line(s3: ObjectStore, tmp_path: Path, wrong: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Mirror(make_run(tmp_path / "run", 1), wrong)
