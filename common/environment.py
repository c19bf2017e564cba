"""What this process is given: whole numbers in environment variables of launchers, and memory."""

import os
from pathlib import Path

from common.errors import UserError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def whole_number(name: str, low: int = 0, high: int = 2**31 - 1, default: int | None = None) -> int:
    """The number in the environment variable `name`; `default` where it is not set.

    Raises:
        UserError: it is no whole number from `low` to `high`, or is not set and has no default.
    """
    text = os.environ.get(name)
    if text is None:
        if default is None:
            raise UserError(f"the environment variable {name} is not set; start the ranks by a launcher, or one alone")
        return default
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else -1
    if not low <= number <= high:
        raise UserError(
            f"the environment variable {name} is {text[:40]!r}, which is no whole number from {low} to {high}; "
            "unset it or correct it"
        )
    return number


def available_bytes() -> int | None:
    """Returns the bytes of memory that this process can still get, or None if the system does not say.

    It is the smaller of what the machine has and of what the process's control group, such as a container, may use.
    """
    amounts = [amount for amount in (_of_machine(), _of_control_group()) if amount is not None]
    return min(amounts, default=None)


def _of_machine() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    kilobytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kilobytes is None else int(kilobytes) * 1024


def _of_control_group() -> int | None:
    """Returns what version 2 of control groups allows: the process's own group and those above it."""
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
    except OSError:
        lines = []
    own = next((line[3:] for line in lines if line.startswith("0::")), "")
    # A container may see its own group as the root, under another path than /proc says.
    group = _CGROUP / own.strip("/")
    places = [place for place in (group, *group.parents) if place.is_relative_to(_CGROUP)]
    return min((amount for place in places if (amount := _of_group(place)) is not None), default=None)


def _of_group(place: Path) -> int | None:
    """Returns what one group allows. File caches are not counted as used: they can be dropped."""
    try:
        limit = (place / "memory.max").read_text().strip()
        used = int((place / "memory.current").read_text())
        statistics = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    if not limit.isdecimal():  # "max": no limit
        return None
    return max(0, int(limit) - used + int(statistics.get("inactive_file", 0)))
