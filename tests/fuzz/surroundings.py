"""What is done around a command instead of to a file: its environment, and the place that it writes to."""

import ctypes
import os
import random
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
    *("rte/notes.txt", ".units/options.json", ".lock", ".adding.lock", "logs/a.log", "tiny/logs/a.log", "done"),
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


def replace_by_fifo(output: Path, rng: random.Random) -> list[Path]:
    """A FIFO in the place of the output."""
    os.mkfifo(output)
    return [output]


PLACES: tuple[Callable[[Path, random.Random], list[Path]], ...] = (
    *(occupy, occupy, occupy, replace_by_file, replace_by_link, replace_by_fifo),
)


def can_mount() -> bool:
    """Whether this process may mount."""
    return os.geteuid() == 0


def make_read_only(root: Path) -> None:
    """Makes `root` read-only for this process and its children, as a disk that was mounted so. Needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, bind, recursive, private, remount, read_only = 0x20000, 0x1000, 0x4000, 0x40000, 0x20, 0x1
    path = os.fsencode(root)
    for made in (
        libc.unshare(new_namespace),
        libc.mount(b"none", b"/", None, recursive | private, None),
        libc.mount(path, path, None, bind, None),
        libc.mount(b"none", path, None, bind | remount | read_only, None),
    ):
        if made:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
