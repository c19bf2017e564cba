"""The citation file, and the hooks before a commit."""

import re

import pytest
import yaml

from common import __version__
from tests.docs.pages import REPOSITORY


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what the format demands
    assert citation["license"] == "Apache-2.0"
    assert citation["version"] == __version__


@pytest.fixture(scope="module")
def hooks():
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    return repository["hooks"]


def test_the_hooks_check_what_make_lint_checks(hooks):
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    recipes = re.findall(r"^(?:style|lint):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert len(recipes) == 2  # lint needs style
    commands = [line.strip().removesuffix(" --cache-dir $(VENV)/mypy_cache") for line in "".join(recipes).splitlines()]
    assert [hook["entry"] for hook in hooks] == commands


def test_the_hooks_use_the_programs_of_the_environment(hooks):
    needed = (REPOSITORY / "requirements-dev.txt").read_text(encoding="utf-8")
    for hook in hooks:
        assert hook["language"] == "system"
        assert re.search(rf"^{hook['entry'].split()[0]}==", needed, re.MULTILINE)
