"""Reads what DeepSpeed's launcher reads: the hostfile and `.deepspeed_env`."""

import re
from pathlib import Path

from common.errors import UserError
from common.files.json_files import read_text

MAX_BYTES = 16 << 20
MAX_SLOTS = 1024


def read_hostfile(path: Path) -> dict[str, int]:
    """Slots by host, in the order of the file. Raises UserError with the first line that DeepSpeed cannot read."""
    try:
        lines = read_text(path, "write a line for each host, as in `node1 slots=8`", MAX_BYTES).splitlines()
    except UserError as error:
        raise UserError(f"--hostfile {error}") from None
    hosts: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        match = re.match(r"(\S+)\s+slots=([0-9]+)", line.strip())
        if match is None or not match[1].isprintable() or not 1 <= int(match[2][:10]) <= MAX_SLOTS:
            raise UserError(
                f"{path}, line {number}: {line[:80]!r} is not a host and its slots, as in `node1 slots=8`; "
                f"give each host a printable name and 1 to {MAX_SLOTS} slots"
            )
        if match[1] in hosts:
            raise UserError(f"{path}, line {number}: {match[1]} is listed twice; give each host one line")
        hosts[match[1]] = int(match[2])
    if not hosts:
        raise UserError(f"{path} names no host; write a line for each, as in `node1 slots=8`")
    return hosts


def read_environment(home: Path, here: Path) -> dict[str, str]:
    """The variables that DeepSpeed will export on the hosts, from `.deepspeed_env` in `home`, then in `here`.

    Raises:
        UserError: a line without "=", which DeepSpeed does not accept.
    """
    found: dict[str, str] = {}
    for path in (home / ".deepspeed_env", here / ".deepspeed_env"):
        text = read_text(path, "correct it", MAX_BYTES) if path.is_file() else ""
        for number, line in enumerate(text.splitlines(), 1):
            name, equals, value = line.partition("=")
            if not equals or not line.isprintable():
                raise UserError(
                    f"{path}, line {number}: {line!r} is not NAME=value; DeepSpeed accepts nothing else, not even a "
                    "blank line or a comment"
                )
            found[name.strip()] = value.strip()
    return found
