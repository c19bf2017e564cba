"""Shows the progress of a long step by tqdm: a bar on a terminal, a line every 30 seconds elsewhere."""

import sys
from types import TracebackType
from typing import Any

LINE_INTERVAL = 30.0  # seconds between two plain lines
_LINE = "{desc}: {n_fmt} of {total_fmt} ({percentage:.0f} %), {rate_fmt}, {elapsed} elapsed, {remaining} to go"


class _Lines:
    """A file for tqdm that writes each state as a line of its own to stderr."""

    def write(self, text: str) -> None:
        if line := text.strip():
            sys.stderr.write(f"{line}\n")

    def flush(self) -> None:
        sys.stderr.flush()


class Progress:
    """A context manager that shows progress on stderr.

    On a terminal it is a bar. Elsewhere (a log file, a job of a scheduler) it is one plain line at the beginning, every
    30 seconds, and at the end, so that logs stay short.

    Args:
        description: what is done, in one or two words.
        total: how much there is to do, in `unit`.
        unit: name of what is counted; "B" (bytes) is shown in kB, MB and so on.
        enabled: False shows nothing; for all ranks but one.
        plain_lines: False shows the bar only; for a step that prints lines of its own.
        quiet_seconds: a step that takes less shows nothing.
    """

    def __init__(
        self,
        description: str,
        total: int,
        unit: str,
        enabled: bool = True,
        plain_lines: bool = True,
        quiet_seconds: float = 0.0,
    ) -> None:
        is_terminal, self._enabled = sys.stderr.isatty(), enabled
        self._is_shown = enabled and (is_terminal or plain_lines)
        self._options: dict[str, Any] = {
            "total": total,
            "desc": description,
            "unit": unit if unit == "B" else f" {unit}",
            "unit_scale": unit == "B",
            "dynamic_ncols": is_terminal,
            "delay": quiet_seconds,
            "file": sys.stderr if is_terminal else _Lines(),
        }
        if not is_terminal:
            every = {"mininterval": LINE_INTERVAL, "maxinterval": LINE_INTERVAL, "miniters": 1}
            self._options |= every | {"bar_format": _LINE}
        self._bar: Any = None

    def __enter__(self) -> "Progress":
        if self._is_shown:
            from tqdm import tqdm  # a sixth of the start of `shards`, which other ranks save

            self._bar = tqdm(**self._options)
        return self

    def resume(self, n: int) -> None:
        """Counts `n` as done by an earlier run; the rate does not include them."""
        if self._bar is not None:
            self._bar.initial = self._bar.n = self._bar.last_print_n = self._bar.n + n
            self._bar.refresh()

    def update(self, n: int = 1) -> None:
        """Counts `n` more as done."""
        if self._bar is not None:
            self._bar.update(n)

    def say(self, line: str) -> None:
        """Prints `line` on stdout, above the bar if there is one."""
        if self._bar is not None:
            self._bar.clear()
        if self._enabled:
            print(line, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
