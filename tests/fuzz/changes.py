"""What is done to a command: to one of its files, to its environment, or to the place that it writes to.

All numbers come from a seeded generator.
"""

import contextlib
import ctypes
import json
import os
import random
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common.files.checksums import content_checksum, file_checksum

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 0.5, -1.0, 1e308, float("nan"), float("inf")),
    *("", "x", "../victim", "/etc/passwd", "a\nb", "é" * 200, "\0", "n" * 5000),
    *([], {}, [[]], [None], {"a": 1}, [1, 2, 3], ["a", "b"]),
)
OF_VALUES = ("replace_value", "replace_value", "drop_value", "retype_value", "resize_number", "extend", "repeat_key")
OF_BYTES = ("truncate", "flip", "flip", "overwrite", "overwrite", "append", "garble", "other_json")
OF_FILES = ("swap", "missing", "directory", "link", "fifo", "socket")
AROUND = ("variables", "read_only", "full", "place", "replaced")
"""The names of all changes. The others take place around the command."""


def change_file(path: Path, rng: random.Random, wanted: str = "") -> str:
    """Changes a valid file, and returns what was done: `wanted`, or a random change.

    Half of the changed files are entered into the manifest beside them, with their new size and hash, and half of the
    changed manifests get the hash of their content: a checksum protects against accidents only.
    """
    kinds = OF_VALUES if path.suffix in (".json", ".jsonl") and rng.random() < 0.6 else (*OF_BYTES, *OF_FILES)
    name = wanted or rng.choice(kinds)
    if name in OF_FILES:
        _replace(path, name, rng)
    else:
        try:
            if name in OF_VALUES:
                _change_values(path, name, rng)
            else:
                path.write_bytes(_changed(path.read_bytes(), name, rng))
        except (ValueError, LookupError):  # it needs text
            name = "flip"
            path.write_bytes(_changed(path.read_bytes(), name, rng))
    if rng.random() < 0.5 and not path.is_symlink() and path.is_file():
        return f"{name}{' and sealed' if _seal(path) else ''}"
    return name


def _change_values(path: Path, name: str, rng: random.Random) -> None:
    """Changes a random value of a JSON file, or of a random line of a file of JSON lines."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = rng.randrange(len(lines))
    content = json.loads(lines[number])
    if name == "repeat_key":
        lines[number] = re.sub(r'\{("[^"]*":)', r"{\1 1, \1", json.dumps(content), count=rng.choice((1, 0)))
    else:
        for _ in range(5 if name == "resize_number" else 1):
            container, key = rng.choice(list(_places(content)))
            _edit(container, key, name, rng)
        lines[number] = json.dumps(content)
    path.write_text("\n".join(lines) + "\n")


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (container, key) of each value at any depth."""
    keys = content.keys() if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    for key in keys:
        yield content, key
        yield from _places(content[key])


def _edit(container: Any, key: Any, name: str, rng: random.Random) -> None:
    """Makes the value at `key` another one, or of another type, or larger, or drops or repeats it."""
    value = container[key]
    if name == "drop_value":
        del container[key]
    elif name == "extend" and isinstance(container, list):
        container.append(value)
    elif name == "extend":
        container[f"{key} too"] = value
    elif name == "replace_value":
        container[key] = rng.choice(VALUES)
    elif name == "resize_number" and isinstance(value, (int, float)) and not isinstance(value, bool):
        container[key] = rng.choice((value + 1, value - 1, value * 1000, -value, value * 10**9))
    elif name == "retype_value" and isinstance(value, dict):
        container[key] = list(value.values())
    elif name == "retype_value" and isinstance(value, list):
        container[key] = dict(zip(map(str, value), value))
    elif name == "retype_value":
        container[key] = [value] if isinstance(value, str) else str(value)


def _changed(content: bytes, name: str, rng: random.Random) -> bytes:
    """Other bytes: cut short, flipped, with counts and offsets that lie, longer, random, or JSON without sense."""
    size = len(content)
    if name == "truncate":
        return content[: rng.choice((0, size // 2, max(0, size - 1), rng.randrange(size + 1)))]
    if name == "append":
        return content + rng.choice((b"\n", b"{}", b"\0" * 100, b"\xff\xfe", rng.randbytes(50)))
    if name == "garble":
        return rng.randbytes(size)
    if name == "other_json":  # no object; brackets deeper than any parser's stack; more digits than Python converts
        bracket, many = rng.choice(("[", '{"a":')), rng.choice((150, 4301, 100_000))
        number = '{"format_version": ' + "9" * many + "}"
        return rng.choice((json.dumps(rng.choice(VALUES)), bracket * many, number)).encode()
    changed = bytearray(content)
    if name == "overwrite" and size > 8:
        word = rng.choice((b"\xff" * 8, b"\xff" * 4, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"\xff" * 7 + b"\x7f"))
        place = rng.randrange(size - 8)
        changed[place : place + len(word)] = word
    elif size:
        for _ in range(rng.choice((1, 1, 8, 100))):
            changed[rng.randrange(size)] = rng.randrange(256)
    return bytes(changed)


def _replace(path: Path, name: str, rng: random.Random) -> None:
    """Puts the content of a file beside it, nothing, or something that is no file in the place of a file."""
    if name == "swap":
        others = sorted(other for other in path.parent.iterdir() if other.is_file() and other != path)
        path.write_bytes(rng.choice(others).read_bytes() if others else b"")
        return
    aside = path.with_name(f".{path.name}.aside")
    path.rename(aside)
    if name == "link":
        path.symlink_to(rng.choice((Path("/nowhere"), path, Path("/dev/zero"), aside)))
        return
    aside.unlink()
    if name == "fifo":
        os.mkfifo(path)
    elif name == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif name == "directory":
        path.mkdir()
        (path / "file").write_text("of a person")


def _seal(path: Path) -> bool:
    """Makes hashes right again: of a manifest, or of the file `path` in its manifest. False where there is none."""
    try:
        manifests = [path.with_name("manifest.json"), path.with_name("documents.json")]
        manifest = path if path in manifests else next(filter(Path.exists, manifests))
        content = json.loads(manifest.read_text())
        if manifest != path:
            files = content.get("content", content)["files"]
            (entry,) = [files[path.name]] if isinstance(files, dict) else [e for e in files if e["name"] == path.name]
            entry.update(bytes=path.stat().st_size, xxh3_128=file_checksum(path))
        sealed = content.get("content", {key: value for key, value in content.items() if key != "xxh3_128"})
        manifest.write_text(json.dumps(content | {"xxh3_128": content_checksum(sealed)}))
    except (StopIteration, ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
        return False
    return True


SIZES = ("WORLD_SIZE", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
RANKS = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
NO_NUMBERS = ("", "x", "-1", "1.5", "1e3", " 1", "²", "0x10", "9" * 30, "9" * 5000, "1\n2")


def wrong_variables(rng: random.Random) -> dict[str, str]:
    """A complete environment of one rank, with one value that cannot be."""
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555"}
    name = rng.choice((*SIZES, *RANKS, "MASTER_PORT", "MASTER_PORT", "MASTER_ADDR", "SLURM_STEP_NUM_TASKS"))
    if name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"):
        variables = {"SLURM_PROCID": "0"}  # otherwise RANK decides
    wrong: Sequence[str] = NO_NUMBERS if name in RANKS else (*NO_NUMBERS, "0")
    if name == "MASTER_PORT":
        wrong = (*wrong, "65536", "99999")
    if name == "MASTER_ADDR":
        wrong = ("", "no-such-host.invalid", "a b", "x" * 300, "é..é", ".")
    return variables | {name: rng.choice(wrong)}


PERSONS_FILES = (
    *("config.json", "results.json", "manifest.json", "documents.json", "settings.json", "metrics.jsonl"),
    *("tables.md", "comparison.md", "done", "shard-00000.arrow", "train-00000.parquet", "train-00001.parquet"),
    *("v.model", "v.vocab", "spiece.model", ".git/HEAD", "notes.txt", ".lock"),
    *("checkpoints/step-00000001/manifest.json", "export/config.json", "rte/results.json", "rte/notes.txt"),
    *(".units/options.json", ".adding.lock", "logs/a.log", "paper/logs/a.log", ".albert-pretraining.json"),
    "tensorboard/events",
)
"""Names of a person's files; most are names that a command would like to use."""


def occupy(output: Path, rng: random.Random) -> list[Path]:
    """Puts a person's files into the place of the output, and returns them."""
    made = []
    for name in rng.sample(PERSONS_FILES, rng.choice((1, 1, 3, 8))):
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rng.choice(("of a person\n", "{}", '{"task": "theirs"}', "")))
        made.append(path)
    return made


def take_place(output: Path, rng: random.Random) -> list[Path]:
    """Puts a person's files, or something that is no directory, into the place of the output, and returns it."""
    kind = rng.choice(("files", "files", "files", "file", "link", "linked directory", "fifo", "socket"))
    if kind == "files":
        return occupy(output, rng)
    if kind == "linked directory":
        output.symlink_to(_theirs(output))
        return occupy(output, rng)
    output.write_text("of a person\n")
    if kind != "file":
        _replace(output, kind, rng)
    return [output]


def replace_later(output: Path, rng: random.Random) -> tuple[list[Path], Callable[[], None]]:
    """A person's files, and what replaces the output by a link to them, once it is there."""
    moment, theirs = rng.choice((0.0, 0.01, 0.1, 0.5)), _theirs(output)
    aside = theirs.with_name("aside")
    shutil.rmtree(aside, ignore_errors=True)

    def replace() -> None:
        while not output.exists():
            time.sleep(0.001)
        time.sleep(moment)
        with contextlib.suppress(OSError):
            output.rename(aside)
            output.symlink_to(theirs)

    return occupy(theirs, rng), threading.Thread(target=replace, daemon=True).start


def _theirs(output: Path) -> Path:
    """A new directory of a person, outside of the inputs."""
    theirs = output.parents[1] / "theirs"
    shutil.rmtree(theirs, ignore_errors=True)
    theirs.mkdir()
    return theirs


def can_mount() -> bool:
    """Whether this process may mount."""
    return os.geteuid() == 0


def make_read_only(root: Path) -> None:
    """Makes `root` read-only for this process and its children, as a disk that was mounted so. Needs root."""
    path, remount, bind, read_only = os.fsencode(root), 0x20, 0x1000, 0x1
    _mount_alone((path, path, None, bind, None), (b"none", path, None, bind | remount | read_only, None))


def make_full(root: Path, free: int) -> None:
    """Gives `root` a disk of its own with so many bytes free, for this process and its children. Needs root."""
    used = sum(-(-path.stat().st_size // 4096) * 4096 for path in root.rglob("*") if path.is_file())
    disk = root.with_name("disk")
    disk.mkdir(exist_ok=True)
    _mount_alone((b"tmpfs", os.fsencode(disk), b"tmpfs", 0, f"size={used + free}".encode()))
    shutil.copytree(root, disk, symlinks=True, dirs_exist_ok=True)
    _mount((os.fsencode(disk), os.fsencode(root), None, 0x1000, None))


def _mount_alone(*mounts: tuple[bytes, bytes, bytes | None, int, bytes | None]) -> None:
    """Mounts for this process and its children only."""
    new_namespace, recursive, private = 0x20000, 0x4000, 0x40000
    if ctypes.CDLL(None, use_errno=True).unshare(new_namespace):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _mount((b"none", b"/", None, recursive | private, None), *mounts)


def _mount(*mounts: tuple[bytes, bytes, bytes | None, int, bytes | None]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for source, target, kind, flags, options in mounts:
        if libc.mount(source, target, kind, ctypes.c_ulong(flags), options):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
