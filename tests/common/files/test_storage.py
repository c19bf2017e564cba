"""Local copies of what is in a bucket, with a real S3 server."""

from pathlib import Path

import pytest

from common.command_line import Parser
from common.errors import UserError
from common.files import storage
from common.files.storage import fetch
from tests.object_store import ObjectStore


def names_in(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def test_a_directory_is_copied_once_and_again_when_it_has_changed(
    s3: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = s3.make_bucket()
    for name in ("run/a", "run/checkpoints/step-1/state", "run/checkpoints/step-2/state"):
        s3.put(bucket, name, name.encode())
    url = f"s3://{bucket}/run"
    assert names_in(fetch(url, without=["checkpoints"])) == {"a"}
    copy = fetch(url + "/")
    assert copy.parent == tmp_path / "cache"
    assert len(names_in(copy)) == 3
    assert "copying 3 files" in capsys.readouterr().err
    assert storage.url_of(str(copy)) == url
    s3.requests.clear()
    assert fetch(url) == copy
    assert not [path for method, path in s3.requests if method == "GET" and path.endswith(("/a", "/state"))]
    s3.client.delete_object(Bucket=bucket, Key="run/checkpoints/step-1/state")
    s3.put(bucket, "run/a", b"other")
    assert names_in(fetch(url)) == {"a", "checkpoints/step-2/state"}
    assert (fetch(url) / "a").read_bytes() == b"other"


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
        ("gs://bucket/a", r"pip install '.\[gcs\]'"),
    ):
        with pytest.raises(UserError, match=said):
            fetch(url)
    with s3.demanding_known_keys(), pytest.raises(UserError, match=r"access is denied .*credentials"):
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
