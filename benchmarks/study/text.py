"""The corpora below --data-root, and the commands that make shards of each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared.commands import Command, Stage
from common.errors import UserError

HELD_OUT = "0.05"


@dataclass(frozen=True)
class Corpus:
    """One raw collection.

    Attributes:
        name: of its directories.
        source: its kind, for `data_prep extract`.
        inputs: files and directories.
    """

    name: str
    source: str
    inputs: tuple[Path, ...]


def find_corpora(root: Path) -> list[Corpus]:
    """The text in `root`: MediaWiki exports and .jsonl files in wikipedia/, and directories of .txt files in books/.

    Raises UserError if there is none, or if two have the same name.
    """
    found = []
    exports = tuple(sorted((root / "wikipedia").glob("*.bz2")))
    if exports:
        found.append(Corpus("wikipedia", "wikipedia", exports))
    found += [Corpus(path.stem, "jsonl", (path,)) for path in sorted((root / "wikipedia").glob("*.jsonl"))]
    if any((root / "books").rglob("*.txt")):
        found.append(Corpus("books", "books", (root / "books",)))
    names = [corpus.name for corpus in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{root / 'wikipedia' / twice}.jsonl has the name of another corpus; rename it")
    if not found:
        raise UserError(f"{root} has no text; put exports (.bz2) or .jsonl into wikipedia/, or .txt files into books/")
    return found


def stages(
    corpora: Sequence[Corpus],
    length: int,
    out: Path,
    python: tuple[str, ...],
    vocabulary: Path,
    size: int | None = None,
    *flags: str,
) -> list[Stage]:
    """The commands from raw text to shards of every corpus, OUT/shards/SPLIT/NAME.

    Args:
        length: tokens of a row.
        vocabulary: of all shards. It is trained if `size`, its pieces, is given.
        flags: further ones of `data_prep shards`.
    """
    prepare = (*python, "data_prep")
    documents = {corpus.name: out / "documents" / corpus.name for corpus in corpora}
    extracts, shards = [], []
    for corpus in corpora:
        words = (*prepare, "extract", "--source", corpus.source, "--input", *map(str, corpus.inputs))
        words += ("--out", str(documents[corpus.name]), "--held-out", HELD_OUT)
        extracts.append(Command(f"extract {corpus.name}", words, documents[corpus.name] / "documents.json"))
        for split in ("train", "held_out"):
            made = out / "shards" / split / corpus.name
            words = (*prepare, "shards", "--documents", str(documents[corpus.name]), "--split", split, *flags)
            words += ("--vocab", str(vocabulary), "--max-seq-length", str(length), "--out", str(made))
            shards.append(Command(f"shards {corpus.name} {split}", words, made / "manifest.json"))
    words = (*prepare, "vocab", "--documents", *map(str, documents.values()), "--out", str(vocabulary))
    train = Command("vocabulary", (*words, "--size", str(size)), vocabulary)
    return [tuple(extracts), *([(train,)] if size else []), tuple(shards)]
