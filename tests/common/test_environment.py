"""Numbers in the environment that a launcher, or a person, has set."""

import pytest

from common.environment import whole_number
from common.errors import UserError

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
