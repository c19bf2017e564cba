"""Records when torch.compile compiles, which takes minutes and may happen in the middle of a run."""

import contextlib
from collections.abc import Iterator
from typing import Any

from pipeline.distributed.hangs import progress


class Compilations:
    """Enters the phase "compilation" at the beginning of each compilation, and the earlier phase at its end."""

    def __init__(self) -> None:
        self._phases = contextlib.ExitStack()

    def begin(self, arguments: Any) -> None:
        """The callback of torch at the beginning."""
        self._phases.enter_context(progress.of_this_process().during("compilation"))

    def end(self, arguments: Any) -> None:
        """The callback of torch at the end."""
        self._phases.close()


@contextlib.contextmanager
def recorded() -> Iterator[None]:
    """Records every compilation of this process inside the block."""
    from torch._dynamo.callback import callback_handler

    compilations = Compilations()
    callback_handler.register_start_callback(compilations.begin)
    callback_handler.register_end_callback(compilations.end)
    try:
        yield
    finally:
        callback_handler.remove_start_callback(compilations.begin)
        callback_handler.remove_end_callback(compilations.end)
