"""The names of the packages in a wheel (`rename` of setup.py)."""

import runpy

import pytest

from tests.docs.pages import REPOSITORY

SETUP = runpy.run_path(str(REPOSITORY / "setup.py"), run_name="setup_of_the_test")


@pytest.mark.parametrize("line", ["import model.config", "import os, pipeline", "from pipeline import(plan)"])
def test_an_import_that_stays_is_refused(tmp_path, line: str) -> None:
    module = tmp_path / "module.py"
    module.write_text(SETUP["rename"](line), encoding="utf-8")
    with pytest.raises(ValueError, match=r"module\.py, line 1: setup\.py does not rename this import"):
        SETUP["check_imports"](module)
