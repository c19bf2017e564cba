"""The corpora below --data-root, and the commands that make shards of each of them."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.study.plan import Plan
from common.errors import UserError
from pipeline.paper.experiments import Command, Stage

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


def stages(corpora: list[Corpus], plan: Plan, out: Path, python: tuple[str, ...]) -> list[Stage]:
    """The commands from raw text to shards of every corpus, OUT/shards/SPLIT/NAME, with one vocabulary."""
    prepare = (*python, "data_prep")
    documents = {corpus.name: out / "documents" / corpus.name for corpus in corpora}
    extracts = []
    for corpus in corpora:
        words = (*prepare, "extract", "--source", corpus.source, "--input", *map(str, corpus.inputs))
        words += ("--out", str(documents[corpus.name]), "--held-out", HELD_OUT)
        extracts.append(Command(f"extract {corpus.name}", words, documents[corpus.name] / "documents.json"))
    vocabulary = out / "vocabulary.model"
    words = (*prepare, "vocab", "--documents", *map(str, documents.values()), "--out", str(vocabulary))
    train = Command("vocabulary", (*words, "--size", str(plan.vocabulary_size)), vocabulary)
    shards = []
    for corpus in corpora:
        for split in ("train", "held_out"):
            made = out / "shards" / split / corpus.name
            words = (*prepare, "shards", "--documents", str(documents[corpus.name]), "--split", split)
            words += ("--vocab", str(vocabulary), "--max-seq-length", str(plan.length), "--out", str(made))
            shards.append(Command(f"shards {corpus.name} {split}", words, made / "manifest.json"))
    return [tuple(extracts), (train,), tuple(shards)]
