"""What a host reads of DeepSpeed's files."""

from pathlib import Path

import pytest

from common.errors import UserError
from pipeline.distributed.query import read_environment


def test_the_variables_here_win_over_those_at_home(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    for directory in (home, here):
        directory.mkdir()
    assert read_environment(home, here) == {}
    (home / ".deepspeed_env").write_text("A=1\nB=b=c\n")
    (here / ".deepspeed_env").write_text("A= 2 \n")
    assert read_environment(home, here) == {"A": "2", "B": "b=c"}


@pytest.mark.parametrize("line", ["", "# comment", "A", "A=\x1b[2J"])
def test_a_line_that_deepspeed_does_not_accept_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / ".deepspeed_env").write_text(f"A=1\n{line}\n")
    with pytest.raises(UserError, match=r"line 2: .* is not NAME=value"):
        read_environment(tmp_path, tmp_path / "none")
