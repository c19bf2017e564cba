"""The committed pages are those of their JSON, and each says which program made it."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import encoders, student
from benchmarks.study import page as study
from tests.docs.pages import REPOSITORY

RESULTS = REPOSITORY / "benchmarks" / "results"
PROGRAMS: dict[str, Callable[[dict[str, Any]], str]] = {
    "encoders": encoders.markdown,
    "encoders_mrpc": encoders.markdown,
    "encoders_mrpc_bf16": encoders.markdown,
    "encoders_by_length": encoders.markdown,
    "student/tasks": encoders.markdown,
    "student/student": student.markdown,
    "student/seed_1/student": student.markdown,
    "student/seed_2/student": student.markdown,
    "student/baselines/student": student.markdown,
    "study/six_corpora/study": study.markdown,
    "study/twelve_layers/study": study.markdown,
    "study/twelve_layers/small_head/study": study.markdown,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_page_is_what_its_program_makes_of_the_json(name):
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert (RESULTS / f"{name}.md").read_text(encoding="utf-8").strip() == PROGRAMS[name](result).strip()


def test_every_page_is_listed_with_its_program():
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", (RESULTS / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[1:]
    listed = {name: program for names, program in rows for name in names.split(", ")}
    pages = {str(path.relative_to(RESULTS).with_suffix("")) for path in RESULTS.rglob("*.md")} - {"README"}
    assert listed.keys() == pages
    assert {name for name, program in listed.items() if "commit" not in program} == PROGRAMS.keys()
