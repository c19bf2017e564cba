"""What is done around a command instead of to a file: its environment, and the place that it writes to."""

import contextlib
import ctypes
import os
import random
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

SIZES = ("WORLD_SIZE", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
RANKS = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
NO_NUMBERS = ("", "x", "-1", "1.5", "1e3", " 1", "²", "0x10", "9" * 30, "9" * 5000, "1\n2")
PERSONS_FILES = (
    *("config.json", "results.json", "manifest.json", "documents.json", "settings.json", "metrics.jsonl", "tables.md"),
    *(
        "comparison.md",
        "shard-00000.arrow",
        "train-00000.parquet",
        "v.model",
        "v.vocab",
    ),
    *(".git/HEAD", "notes.txt", "checkpoints/step-00000001/manifest.json", "export/config.json", "rte/results.json"),
    *("rte/notes.txt", ".units/options.json", ".lock", ".adding.lock", "logs/a.log", "paper/logs/a.log", "done"),
    *(".albert-pretraining.json", "spiece.model", "tensorboard/events", "train-00001.parquet", "v.vocab"),
)
"""Names of a person's files; most are names that a command would like to use."""


def wrong_variables(rng: random.Random) -> dict[str, str]:
    """A complete environment of one rank, with one value that cannot be."""
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555"}
    name = rng.choice((*SIZES, *RANKS, "MASTER_PORT", "MASTER_PORT", "MASTER_ADDR", "SLURM_STEP_NUM_TASKS"))
    if name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"):
        variables = {"SLURM_PROCID": "0"}  # otherwise RANK decides
    value = rng.choice(NO_NUMBERS if name in RANKS else (*NO_NUMBERS, "0"))
    if name == "MASTER_PORT":
        value = rng.choice((*NO_NUMBERS, "0", "65536", "99999"))
    if name == "MASTER_ADDR":
        value = rng.choice(("", "no-such-host.invalid", "a b", "x" * 300, "é..é", "."))
    return variables | {name: value}


def occupy(output: Path, rng: random.Random) -> list[Path]:
    """A person's files in the place of the output."""
    made = []
    for name in rng.sample(PERSONS_FILES, rng.choice((1, 1, 3, 8))):
        path = output / name
        if os.path.lexists(path) or any(parent.is_file() for parent in path.parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rng.choice(("of a person\n", "{}", '{"task": "theirs"}', "")))
        made.append(path)
    return made


def replace_by_file(output: Path, rng: random.Random) -> list[Path]:
    """A file of a person in the place of the output."""
    output.write_text("of a person\n")
    return [output]


def replace_by_link(output: Path, rng: random.Random) -> list[Path]:
    """A link to nothing in the place of the output."""
    output.symlink_to("/nowhere/at/all")
    return [output]


def replace_by_link_to_a_directory(output: Path, rng: random.Random) -> list[Path]:
    """A link to a directory of a person in the place of the output."""
    theirs = output.parent.parent / "theirs"
    shutil.rmtree(theirs, ignore_errors=True)
    theirs.mkdir()
    output.symlink_to(theirs)
    return occupy(theirs, rng)


def replace_by_socket(output: Path, rng: random.Random) -> list[Path]:
    """A socket in the place of the output."""
    os.mknod(output, stat.S_IFSOCK | 0o600)
    return [output]


def replace_by_fifo(output: Path, rng: random.Random) -> list[Path]:
    """A FIFO in the place of the output."""
    os.mkfifo(output)
    return [output]


PLACES: tuple[Callable[[Path, random.Random], list[Path]], ...] = (
    *(occupy, occupy, occupy, replace_by_file, replace_by_link, replace_by_link_to_a_directory),
    *(replace_by_fifo, replace_by_socket),
)


def can_mount() -> bool:
    """Whether this process may mount."""
    return os.geteuid() == 0


def make_read_only(root: Path) -> None:
    """Makes `root` read-only for this process and its children, as a disk that was mounted so. Needs root."""
    path, remount, bind, read_only = os.fsencode(root), 0x20, 0x1000, 0x1
    _mount_alone((path, path, None, bind, None), (b"none", path, None, bind | remount | read_only, None))


def make_full(root: Path, free: int) -> None:
    """Gives `root` a disk of its own with so many bytes free, for this process and its children. Needs root."""
    used = sum((path.lstat().st_size | 4095) + 1 for path in [root, *root.rglob("*")])
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


def replace_during_the_run(output: Path, victim: Path, aside: Path, seconds: float) -> None:
    """Starts a thread that moves `output` to `aside` once it is there, and puts a link to `victim` in its place."""

    def replace() -> None:
        while not output.exists():
            time.sleep(0.001)
        time.sleep(seconds)
        with contextlib.suppress(OSError):
            output.rename(aside)
            output.symlink_to(victim)

    threading.Thread(target=replace, daemon=True).start()
