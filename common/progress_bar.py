"""Shows the progress of a long step: a bar on a terminal, a line every 30 seconds elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from common.text import format_duration

if TYPE_CHECKING:
    from tqdm import tqdm

LINE_INTERVAL = 30.0  # seconds between two plain lines


class Progress:
    """A context manager that shows progress on stderr.

    On a terminal it is a tqdm bar with rate and remaining time. Elsewhere (a log file, a job of a scheduler) it is one
    plain line every 30 seconds and one at the end, so that logs stay short.

    Args:
        description: what is done, in one or two words.
        total: how much there is to do, in `unit`; None if it is not known.
        unit: name of what is counted; "B" (bytes) is shown in MB.
        enabled: False shows nothing; for all ranks but one.
        plain_lines: False shows the bar only; for a step that prints lines of its own.
        quiet_seconds: a step that takes less shows nothing.
    """

    def __init__(
        self,
        description: str,
        total: int | None,
        unit: str,
        enabled: bool = True,
        plain_lines: bool = True,
        quiet_seconds: float = 0.0,
    ) -> None:
        self.description, self.total, self.unit = description, total, unit
        self._enabled, self._plain_lines, self._quiet_seconds = enabled, enabled and plain_lines, quiet_seconds
        self._done = self._before = 0
        self._bar: tqdm | None = None
        self._started = self._printed = time.monotonic()

    def __enter__(self) -> "Progress":
        self._started = self._printed = time.monotonic()
        if self._enabled and sys.stderr.isatty():
            from tqdm import tqdm  # a sixth of the start of `shards`, and only a terminal needs it

            is_bytes = self.unit == "B"
            self._bar = tqdm(
                total=self.total,
                desc=self.description,
                unit=self.unit if is_bytes else f" {self.unit}",
                unit_scale=is_bytes,
                dynamic_ncols=True,
                delay=self._quiet_seconds,
                file=sys.stderr,
            )
        return self

    def resume(self, n: int) -> None:
        """Counts `n` as done by an earlier run; the rate does not include them."""
        self._before += n
        self._done += n
        if self._bar is not None:
            self._bar.initial = self._bar.n = self._bar.last_print_n = self._done
            self._bar.refresh()

    def update(self, n: int = 1) -> None:
        """Counts `n` more as done."""
        self._done += n
        if self._bar is not None:
            self._bar.update(n)
        elif time.monotonic() - self._printed >= LINE_INTERVAL:
            self._print_line()

    def say(self, line: str) -> None:
        """Prints `line` on stdout, above the bar if there is one."""
        if self._bar is not None:
            self._bar.clear()
            print(line, flush=True)
            self._bar.refresh()
        elif self._enabled:
            print(line, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif kind is None and time.monotonic() - self._started >= self._quiet_seconds:
            self._print_line()

    def _print_line(self) -> None:
        self._printed = time.monotonic()
        if self._plain_lines:
            print(self.line(self._printed - self._started), file=sys.stderr, flush=True)

    def line(self, elapsed: float) -> str:
        """Returns the plain line after `elapsed` seconds: count, percentage, rate, times."""
        divisor, unit = (1e6, "MB") if self.unit == "B" else (1, self.unit)
        digits = 1 if divisor > 1 else 0
        count = f"{self._done / divisor:,.{digits}f}"
        rate = (self._done - self._before) / elapsed if elapsed > 0 else 0.0
        parts = [f"{count} {unit}"]
        if self.total:
            percentage = 100 * self._done / self.total
            parts = [f"{count} of {self.total / divisor:,.{digits}f} {unit} ({percentage:.0f} %)"]
        parts.append(f"{rate / divisor:,.1f} {unit}/s")
        parts.append(f"{format_duration(elapsed)} elapsed")
        if self.total and rate and self._done < self.total:
            parts.append(f"{format_duration((self.total - self._done) / rate)} to go")
        return f"{self.description}: " + ", ".join(parts)
