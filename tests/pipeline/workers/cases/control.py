"""Work that succeeds or fails on some of the ranks."""

from typing import Any

from common.errors import UserError
from pipeline.distributed.control import ControlGroup, gather_all


def agree_in_many_ways() -> dict[str, list[Any]]:
    """By case, what each rank got: its result, or the message of the error."""
    control = ControlGroup()

    def outcomes(ill: tuple[int, ...], message: str = "rank {} is ill") -> list[Any]:
        def work() -> int:
            if control.rank in ill:
                raise ValueError(message.format(control.rank))
            return 10 * control.rank

        try:
            result: Any = control.all_or_raise(work, (ValueError,))
        except UserError as error:
            result = str(error)
        return gather_all(control._group, result)

    return {
        "all succeed": outcomes(()),
        "one fails": outcomes((1,)),
        "two fail": outcomes((1, 2)),
        "without a message": outcomes((0,), ""),
        "afterwards": gather_all(control._group, gather_all(control._group, control.rank)),
    }
