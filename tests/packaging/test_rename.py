"""The names of the packages in a wheel (`rename` of setup.py)."""

import runpy

import pytest

from tests.docs.pages import REPOSITORY

SETUP = runpy.run_path(str(REPOSITORY / "setup.py"), run_name="setup_of_the_test")


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("from common.errors import UserError", "from albert_pretraining.common.errors import UserError"),
        ("    from model import AlbertConfig", "    from albert_pretraining.model import AlbertConfig"),
        ("import pipeline\n", "from albert_pretraining import pipeline\n"),
        ("run `python -m data_prep verify DIR`", "run `albert data verify DIR`"),
        ("python -m pipeline.plan; python -m pipeline", "albert plan; albert"),
        ("deepspeed --module pipeline.pretrain", "deepspeed --module albert_pretraining.pipeline.pretrain"),
        ('"pipeline.export"', '"pipeline.export"'),  # the writer in a marker is the same everywhere
        ("from model to model", "from model to model"),
        ("import modelling", "import modelling"),
    ],
)
def test_imports_and_commands_are_renamed(text: str, renamed: str) -> None:
    assert SETUP["rename"](text) == renamed
    assert SETUP["rename"](renamed) == renamed


@pytest.mark.parametrize("line", ["import model.config", "import os, pipeline", "from pipeline import(plan)"])
def test_an_import_that_stays_is_refused(tmp_path, line: str) -> None:
    module = tmp_path / "module.py"
    module.write_text(SETUP["rename"](line), encoding="utf-8")
    with pytest.raises(ValueError, match=r"module\.py, line 1: setup\.py does not rename this import"):
        SETUP["check_imports"](module)
