"""Shows the progress of a long step by tqdm: a bar on a terminal, a line every 30 seconds elsewhere."""

import sys
from dataclasses import dataclass, field
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


@dataclass
class Progress:
    """A context manager that shows progress on stderr: on a terminal a bar, elsewhere a line now and then.

    Such lines come at the beginning (after `quiet_seconds`), every 30 seconds, and at the end, so that logs stay short.
    """

    description: str  # what is done, in one or two words
    total: int  # how much there is to do, in `unit`
    unit: str  # of what is counted; "B" (bytes) is shown in kB, MB and so on
    enabled: bool = True  # False shows nothing; for all ranks but one
    plain_lines: bool = True  # False shows the bar only; for a step that prints lines of its own
    quiet_seconds: float = 0.0  # a step that takes less shows nothing
    _bar: Any = field(default=None, init=False)

    def __enter__(self) -> "Progress":
        is_terminal = sys.stderr.isatty()
        if self.enabled and (is_terminal or self.plain_lines):
            from tqdm import tqdm  # a sixth of the start of `shards`, which other ranks save

            options: dict[str, Any] = {"dynamic_ncols": True, "file": sys.stderr}
            if not is_terminal:
                every = {"mininterval": LINE_INTERVAL, "maxinterval": LINE_INTERVAL, "miniters": 1}
                options = every | {"bar_format": _LINE, "file": _Lines()}
            counted = {"unit": "B", "unit_scale": True} if self.unit == "B" else {"unit": f" {self.unit}"}
            self._bar = tqdm(total=self.total, desc=self.description, delay=self.quiet_seconds, **counted, **options)
        return self

    def resume(self, n: int) -> None:
        """Counts `n` as done by an earlier run; the rate does not include them."""
        if self._bar is not None and n:
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
        if self.enabled:
            print(line, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
