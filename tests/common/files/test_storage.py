"""Local copies of what is in a bucket, with a real S3 server."""

import os
from pathlib import Path

import pytest

from common.command_line import Parser
from common.errors import UserError
from common.files import owned, storage
from common.files.storage import fetch
from tests.object_store import ObjectStore


def make_export(directory: Path) -> Path:
    """A directory of ours with a list of its files."""
    with owned.replacing_directory(directory / "export", "pipeline.export") as place:
        (place / "model.bin").write_bytes(bytes(1000))
        (place / "parts").mkdir()
        (place / "parts" / "a.json").write_text("{}")
        (place / "README.md").write_text("a card")
    return directory / "export"


def names_in(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def test_a_directory_is_copied_once_and_then_what_has_changed(
    s3: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket, export = s3.make_bucket(), make_export(tmp_path)
    s3.upload(export, bucket, "models/base")
    url = f"s3://{bucket}/models/base"
    copy = fetch(url + "/")
    assert copy.parent == tmp_path / "cache"
    assert names_in(copy) == names_in(export)
    assert "copying 4 files" in capsys.readouterr().err
    assert storage.url_of(str(copy)) == url

    def gets() -> list[str]:
        return [path.rpartition("/")[2] for method, path in s3.requests if method == "GET" and "models/base/" in path]

    s3.requests.clear()
    assert fetch(url) == copy
    assert gets() == []
    # A person edits the card, and another program damages the copy without changing its size or its time.
    s3.put(bucket, "models/base/README.md", b"a better card")
    times = (copy / "model.bin").stat()
    (copy / "model.bin").write_bytes(b"x" + bytes(999))
    os.utime(copy / "model.bin", ns=(times.st_atime_ns, times.st_mtime_ns))
    fetch(url)
    assert sorted(gets()) == ["README.md", "model.bin"]
    assert (copy / "model.bin").read_bytes() == bytes(1000)
    assert (copy / "README.md").read_text() == "a better card"


def test_what_the_store_has_no_more_leaves_the_copy(s3: ObjectStore, tmp_path: Path) -> None:
    bucket = s3.make_bucket()
    for name in ("run/a", "run/checkpoints/step-1/state", "run/checkpoints/step-2/state"):
        s3.put(bucket, name, name.encode())
    url = f"s3://{bucket}/run"
    assert names_in(fetch(url, without=["checkpoints"])) == {"a"}
    copy = fetch(url)
    assert len(names_in(copy)) == 3
    s3.client.delete_object(Bucket=bucket, Key="run/checkpoints/step-1/state")
    s3.client.delete_object(Bucket=bucket, Key="run/a")
    s3.put(bucket, "run/b", b"")
    assert names_in(fetch(url, without=["checkpoints"])) == {"b", *(f"checkpoints/step-{n}/state" for n in (1, 2))}
    assert names_in(fetch(url)) == {"b", "checkpoints/step-2/state"}


def test_a_truncated_object_is_found_by_its_hash(s3: ObjectStore, tmp_path: Path) -> None:
    bucket, export = s3.make_bucket(), make_export(tmp_path)
    s3.upload(export, bucket, "base")
    for content in (bytes(999), b"x" + bytes(999)):
        s3.put(bucket, "base/model.bin", content)
        with pytest.raises(UserError, match=r"base: model.bin is not the file that \.albert.* lists; upload it again"):
            fetch(f"s3://{bucket}/base")
    s3.client.delete_object(Bucket=bucket, Key="base/model.bin")
    with pytest.raises(UserError, match=r"model\.bin is missing that"):
        fetch(f"s3://{bucket}/base")
    assert fetch(f"s3://{bucket}/base/parts")  # a part of the directory has no list


def test_an_object_alone_keeps_its_name(s3: ObjectStore) -> None:
    bucket = s3.make_bucket()
    s3.put(bucket, "tables/new.csv", b"text\n")
    copy = fetch(f"s3://{bucket}/tables/new.csv")
    assert (copy.name, copy.read_bytes()) == ("new.csv", b"text\n")


def test_mistakes_are_one_line(s3: ObjectStore) -> None:
    bucket = s3.make_bucket()
    s3.put(bucket, "a/c", b"")
    for url, said in (
        ("s3://no-such-bucket/a", "there is no such bucket or object"),
        (f"s3://{bucket}/b", "there is no such bucket or object"),
        ("ftp://a/b", "URLs have the form"),
        ("s3://", "URLs have the form"),
        ("gs://bucket/a", r"pip install 'albert-pretraining\[gcs\]'"),
    ):
        with pytest.raises(UserError, match=said):
            fetch(url)
    with s3.demanding_known_keys(), pytest.raises(UserError, match=r"access is denied .*check the credentials"):
        fetch(f"s3://{bucket}/a")
    with s3.failing(lambda method, path: 403), pytest.raises(UserError, match="access is denied"):
        fetch(f"s3://{bucket}/a")


def test_a_flag_takes_a_url(s3: ObjectStore) -> None:
    bucket = s3.make_bucket()
    s3.put(bucket, "run/settings.json", b"{}")
    s3.put(bucket, "run/checkpoints/latest", b"")
    parser = Parser(prog="tool")
    parser.add_argument("--run", type=storage.readable, metavar="RUN")
    parser.add_argument("--runs", nargs="+", type=storage.records, metavar="RUN")
    args = parser.parse_all(["--run", f"s3://{bucket}/run", "--runs", "here", f"s3://{bucket}"])
    assert names_in(args.run) == {"settings.json", "checkpoints/latest"}
    assert args.runs[0] == Path("here")
    assert names_in(args.runs[1]) == {"run/settings.json"}
    with pytest.raises(UserError, match="unknown argument"):  # before anything is copied
        parser.parse_all(["--run", "s3://no-such-bucket/a", "--rum", "a"])
