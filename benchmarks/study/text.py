"""The corpora below --data-root, and the commands that make shards of each of them."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared.commands import Command, Stage
from common.errors import UserError
from data_prep.corpus.documents import HELD_OUT, SPLITS, read_manifest
from data_prep.sources.opening import compression

SENTENCES = 500_000  # that a vocabulary is trained on, at most
FRACTIONS = ("--held-out", "0.05", "--validation", "0.03")


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

    def documents(self, out: Path) -> Path:
        """The directory of its documents."""
        return out / "documents" / self.name

    def shards(self, out: Path, split: str) -> Path:
        """The directory of its shards of one split."""
        return out / "shards" / split / self.name


def find_corpora(root: Path) -> list[Corpus]:
    """The text in `root`: exports and JSON Lines in wikipedia/ and corpus/, and directories of .txt files in books/.

    Raises UserError if there is none, or if two have the same name.
    """
    found = []
    exports = tuple(sorted((root / "wikipedia").glob("*.bz2")))
    if exports:
        found.append(Corpus("wikipedia", "wikipedia", exports))
    for folder in ("wikipedia", "corpus"):
        for path in sorted((root / folder).glob("*.jsonl*")):
            name, _, ending = path.name.partition(".jsonl")
            if ending in ("", f".{compression(path)}") and not path.name.startswith("."):
                found.append(Corpus(name, "jsonl", (path,)))
    if any((root / "books").rglob("*.txt")):
        found.append(Corpus("books", "books", (root / "books",)))
    names = [corpus.name for corpus in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{root} has two corpora of the name {twice}; rename a file")
    if not found:
        raise UserError(
            f"{root} has no text; put exports (.bz2) into wikipedia/, JSON Lines into wikipedia/ or corpus/, or .txt "
            "files into books/"
        )
    return found


def splits_of(corpus: Corpus, out: Path) -> list[str]:
    """The splits of a corpus that have documents, once it is extracted."""
    return [split for split, counts in read_manifest(corpus.documents(out)).counts.items() if counts.documents]


@dataclass(frozen=True)
class Preparation:
    """Prepares the text of several corpora in OUT.

    Attributes:
        corpora: they are kept apart, and no one has documents that are similar to the held-out ones of another.
        length: tokens of a row.
        out: of everything.
        job: begins a command of `data_prep`: with MPI, each job has all cores, and there is one at a time.
    """

    corpora: Sequence[Corpus]
    length: int
    out: Path
    job: tuple[str, ...]

    @classmethod
    def on_all_cores(
        cls, corpora: Sequence[Corpus], length: int, out: Path, python: tuple[str, ...], cores: int
    ) -> "Preparation":
        """With as many MPI ranks as cores, where MPI is installed."""
        mpi = ("mpirun", "-n", str(cores)) if cores > 1 and shutil.which("mpirun") else ()
        return cls(corpora, length, out, (*mpi, *python, "data_prep"))

    def _stages(self, commands: Iterable[Command]) -> list[Stage]:
        return [(command,) for command in commands] if self.job[0] == "mpirun" else [tuple(commands)]

    def extract(self) -> list[Stage]:
        """The commands that make documents of each corpus."""
        commands = []
        for corpus in self.corpora:
            words = (*self.job, "extract", "--source", corpus.source, "--input", *map(str, corpus.inputs))
            words += ("--out", str(corpus.documents(self.out)), *FRACTIONS)
            done = corpus.documents(self.out) / "documents.json"
            commands.append(Command(f"extract {corpus.name}", words, done))
        return self._stages(commands)

    def train_vocabulary(self, vocabulary: Path, size: int) -> list[Stage]:
        """The command that trains a vocabulary on all corpora."""
        documents = [str(corpus.documents(self.out)) for corpus in self.corpora]
        words = (*self.job, "vocab", "--documents", *documents, "--out", str(vocabulary), "--size", str(size))
        words += ("--sentences", str(SENTENCES))
        return [(Command("vocabulary", words, vocabulary),)]

    def shards(self, vocabulary: Path, *flags: str, splits: Sequence[str] = SPLITS) -> list[Stage]:
        """The commands, with further flags, that make shards of splits that have documents. After `extract`."""
        commands = []
        for corpus in self.corpora:
            others = [str(other.documents(self.out)) for other in self.corpora if other != corpus]
            for split in splits_of(corpus, self.out):
                if split not in splits:
                    continue
                made = corpus.shards(self.out, split)
                words = (*self.job, "shards", "--documents", str(corpus.documents(self.out)), "--split", split, *flags)
                words += ("--vocab", str(vocabulary), "--max-seq-length", str(self.length), "--out", str(made))
                if split != HELD_OUT and others:
                    words += ("--held-out-of", *others)
                commands.append(Command(f"shards {corpus.name} {split}", words, made / "manifest.json"))
        return self._stages(commands)
