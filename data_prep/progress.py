"""How far a long step has come: a bar on a terminal, a line every half minute elsewhere."""

import sys
import threading
import time
from types import TracebackType

from tqdm import tqdm

LINE_INTERVAL = 30.0  # seconds between two plain lines


def format_duration(seconds: float) -> str:
    """`seconds` as `m:ss` or `h:mm:ss`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


class Progress:
    """A context manager that shows progress on stderr.

    On a terminal it is a tqdm bar with rate and ETA. Elsewhere (a log file, a batch job) it is one plain line
    every 30 s and one at the end, so that logs stay short; or none at all.

    Args:
        description: what is being done, one or two words.
        total: how much there is to do, in `unit`; None where that is not known.
        unit: name of what is counted; "B" is shown in MB.
        enabled: False shows nothing; for every rank but one.
        plain_lines: False shows the bar only; for a step that says lines of its own.
    """

    def __init__(
        self, description: str, total: int | None, unit: str, enabled: bool = True, plain_lines: bool = True
    ) -> None:
        self.description, self.total, self.unit = description, total, unit
        self._enabled, self._plain_lines = enabled, plain_lines
        self._done = self._before = 0
        self._stop = threading.Event()
        self._timer: threading.Thread | None = None
        self._figures: dict[str, object] = {}
        self._bar: tqdm | None = None
        self._started = time.monotonic()

    def __enter__(self) -> "Progress":
        self._started = time.monotonic()
        if self._enabled and sys.stderr.isatty():
            is_bytes = self.unit == "B"
            self._bar = tqdm(
                total=self.total,
                desc=self.description,
                unit=self.unit if is_bytes else f" {self.unit}",
                unit_scale=is_bytes,
                dynamic_ncols=True,
                file=sys.stderr,
            )
        elif self._enabled and self._plain_lines:
            # By the clock: a unit of work can take longer than the interval, and a log that stands still looks dead.
            self._timer = threading.Thread(target=self._print_lines, name="progress", daemon=True)
            self._timer.start()
        return self

    def resume(self, n: int, **figures: object) -> None:
        """Counts `n` units that an earlier run has done, which say nothing about the speed of this one."""
        self._before += n
        self._done += n
        self._figures = self._figures | figures
        if self._bar is not None:
            self._bar.initial = self._bar.n = self._bar.last_print_n = self._done
            self._bar.set_postfix(self._figures)

    def update(self, n: int = 1, **figures: object) -> None:
        """Counts `n` more units as done; `figures` are named values shown beside the count until replaced."""
        self._done += n
        self._figures = self._figures | figures
        if self._bar is not None:
            self._bar.set_postfix(self._figures, refresh=False)
            self._bar.update(n)

    def say(self, line: str) -> None:
        """Prints a line of one's own on stdout, above the bar where there is one."""
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
        elif self._timer is not None:
            self._stop.set()
            self._timer.join()
            if kind is None:
                self._print_line()

    def _print_lines(self) -> None:
        while not self._stop.wait(LINE_INTERVAL):
            self._print_line()

    def _print_line(self) -> None:
        print(self.line(time.monotonic() - self._started), file=sys.stderr, flush=True)

    def line(self, elapsed: float) -> str:
        """The plain line after `elapsed` seconds: count, share, rate, time taken and to go, figures."""
        divisor, unit = (1e6, "MB") if self.unit == "B" else (1, self.unit)
        digits = 1 if divisor > 1 else 0
        count = f"{self._done / divisor:,.{digits}f}"
        rate = (self._done - self._before) / elapsed if elapsed > 0 else 0.0
        parts = [f"{count} {unit}"]
        if self.total:
            share = 100 * self._done / self.total
            parts = [f"{count} of {self.total / divisor:,.{digits}f} {unit} ({share:.0f} %)"]
        parts.append(f"{rate / divisor:,.1f} {unit}/s")
        parts.append(f"{format_duration(elapsed)} elapsed")
        if self.total and rate and self._done < self.total:
            parts.append(f"{format_duration((self.total - self._done) / rate)} to go")
        parts += [f"{name} {value}" for name, value in self._figures.items()]
        return f"{self.description}: " + ", ".join(parts)
