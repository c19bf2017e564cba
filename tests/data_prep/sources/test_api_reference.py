"""Descriptions of web services in botocore's wheel become prose, each paragraph once."""

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from data_prep.sources import api_reference
from data_prep.sources.api_reference import prose, read_documents

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
    (document,) = read_documents(wheel(tmp_path / "b.whl", {"queues/2020-01-01": model}))
    assert (document.id, document.title) == ("queues Read", "queues Read")
    assert document.text.split("\n") == [LONG.strip(), FIRST, "Describes one of the parts that a queue has."]


def test_no_paragraph_is_yielded_twice(tmp_path: Path) -> None:
    """Held-out documents would otherwise hold the sentences of training documents."""
    described = {"documentation": f"<p>{LONG}</p>", "input": {"shape": "Input"}}
    again = {"documentation": f"<p>{LONG.replace('queue', 'table')}</p>", "input": {"shape": "Input"}}
    models = {"queues/2020-01-01": service(Read=described), "tables/2020-01-01": service(Read=again)}
    documents = list(read_documents(wheel(tmp_path / "b.whl", models)))
    paragraphs = [line for document in documents for line in document.text.split("\n")]
    assert len(documents) == 2
    assert len(paragraphs) == len(set(paragraphs)) == 4


def test_only_the_newest_version_of_a_service_is_read(tmp_path: Path) -> None:
    old, new = (service(Read={"documentation": f"<p>{year} {LONG}</p>"}) for year in (2019, 2021))
    found = list(read_documents(wheel(tmp_path / "b.whl", {"queues/2021-05-01": new, "queues/2019-12-31": old})))
    assert [document.text[:4] for document in found] == ["2021"]


def test_short_documents_are_left_out(tmp_path: Path) -> None:
    model = service(Read={"documentation": f"<p>{FIRST}</p>"})
    assert list(read_documents(wheel(tmp_path / "b.whl", {"queues/2020-01-01": model}))) == []
    assert len(FIRST) < api_reference.MIN_CHARACTERS


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
    assert list(prose(description)) == paragraphs
