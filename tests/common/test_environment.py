"""Numbers in the environment that a launcher, or a person, has set."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from common.environment import whole_number
from common.errors import UserError

REPOSITORY = Path(__file__).parents[2]
WRONG = ("", "x", "-1", "1.5", "1e3", " 1", "²", "9" * 5000, str(2**31))


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_number_is_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RANK", text)
    with pytest.raises(UserError, match=r"RANK is .* no whole number from 0 to 2147483647") as raised:
        whole_number("RANK")
    assert len(str(raised.value)) < 300
    monkeypatch.setenv("RANK", "29500")
    assert whole_number("RANK", 1, 29500) == 29500
    with pytest.raises(UserError, match="'29500', which is no whole number from 1 to 29499"):
        whole_number("RANK", 1, 29499)
    monkeypatch.delenv("RANK")
    assert whole_number("RANK", default=7) == 7
    with pytest.raises(UserError, match="is not set"):
        whole_number("RANK")


def test_streams_that_are_closed_are_opened_on_nothing(tmp_path: Path) -> None:
    code = (
        "import os, sys; sys.argv[0] = 'albert'; import common.environment as e; e.begin_command()\n"
        f"opened = os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_WRONLY)\n"
        "print('lost'); print('lost', file=sys.stderr); sys.stdout.flush(); sys.stderr.flush()\n"
        "os.write(opened, str(opened > 2).encode())"
    )
    shell = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} <&- >&- 2>&-"
    subprocess.run(["bash", "-c", shell], cwd=REPOSITORY, check=True)
    assert (tmp_path / "file").read_text() == "True"
