"""Generated corpora and processes, for the tests of the jobs from documents to shards."""

import contextlib
import io
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import sentencepiece
import tokenizers

from data_prep.corpus import documents as d
from data_prep.corpus.documents import Document
from data_prep.sources import Skipped, Source
from data_prep.text.normalize import normalize
from data_prep.text.sentencepiece_vocabulary import SPECIAL_PIECES, USER_SYMBOLS, SentencePieceVocabulary

ROOT = Path(__file__).resolve().parents[2]
_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "han", "jel", "kir", "lom", "mur", "né", "pir", "qua", "ros", "shu", "ter")


def write_part(path: Path, documents: Iterable[Document]) -> d.PartFile:
    with d.writing_part(path) as part:
        for document in documents:
            part.add(document)
    assert part.file is not None
    return part.file


def read_documents(directories: Iterable[Path], split: str = "train") -> list[Document]:
    """Returns every document of one split, directory after directory."""
    return [
        Document(*row.values())
        for directory in directories
        for file in d.read_manifest(directory).files
        if file.name.startswith(f"{split}-")
        for row in pq.ParquetFile(directory / file.name).read().to_pylist()
    ]


def read_all(source: Source) -> list[Document | Skipped]:
    """Returns what all work units of a collection give, in order."""
    return [item for unit in source.units for item in source.read(unit)]


def train_pieces(lines: Iterable[str], size: int, rule: str) -> bytes:
    """Trains a vocabulary with a normalisation of SentencePiece's own, which the project never does."""
    written, ids = io.BytesIO(), {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
    pieces = {"control_symbols": list(SPECIAL_PIECES[2:]), "user_defined_symbols": list(USER_SYMBOLS)}
    how = {"normalization_rule_name": rule, "character_coverage": 0.999, "num_threads": 1, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=map(normalize, lines), model_writer=written, vocab_size=size, **ids, **pieces, **how
    )
    return SentencePieceVocabulary(written.getvalue()).serialized


def make_sentences(count: int, seed: int = 0) -> list[str]:
    """Returns sentences of a made-up language with Zipf's frequencies, numbers, quotes, accents and rare characters."""
    generator = np.random.default_rng(seed)
    lexicon = np.random.default_rng(1)
    words = ["".join(lexicon.choice(_SYLLABLES, lexicon.integers(1, 5))) for _ in range(600)]
    weights = 1 / np.arange(1, len(words) + 1)
    weights /= weights.sum()
    sentences = []
    for _ in range(count):
        chosen = generator.choice(words, generator.integers(2, 20), p=weights).tolist()
        for position in np.flatnonzero(generator.random(len(chosen)) < 0.15):
            kind, number, word = generator.integers(5), int(generator.integers(1, 3000)), chosen[position]
            chosen[position] = (f"{number},", f"({word})", f"“{word}”", f"{number}–{number + 7}", f"{word}…")[kind]
        sentences.append(" ".join(chosen).capitalize() + ".")
    return sentences


def make_documents(count: int, seed: int = 0) -> list[Document]:
    """Returns documents of 1 to 60 sentences in paragraphs."""
    generator = np.random.default_rng(seed)
    documents = []
    for number in range(count):
        sentences = make_sentences(int(generator.integers(1, 60)), seed=1000 * seed + number)
        paragraphs = [" ".join(sentences[first : first + 7]) for first in range(0, len(sentences), 7)]
        documents.append(Document(f"doc-{number}", f"Document {number}", "\n".join(paragraphs)))
    return documents


def write_documents(
    directory: Path,
    documents: Sequence[Document],
    parts: int = 2,
    held_out: Sequence[Document] | None = None,
    validation: Sequence[Document] | None = None,
) -> Path:
    """Writes `documents` as the train split of a directory of documents, and others as its other splits."""
    directory.mkdir(parents=True)
    manifest = d.DocumentsManifest("generated", inputs=[], options={}, counts={}, raw_bytes=0, skipped={})
    for split, chosen in (("train", documents), ("held_out", held_out), ("validation", validation)):
        if chosen is not None:
            manifest.counts[split] = d.DocumentCounts()
            for document in chosen:
                manifest.counts[split].add(document)
            bounds = [len(chosen) * part // parts for part in range(parts + 1)]
            for index, (first, stop) in enumerate(itertools.pairwise(bounds)):
                manifest.files.append(write_part(directory / d.part_name(split, index), chosen[first:stop]))
    d.write_manifest(directory, manifest)
    return directory


def start(command: Sequence[str | Path], ranks: int = 1, **environment: str) -> subprocess.Popen[str]:
    """Starts `python COMMAND` in a session of its own, under mpirun if there are several ranks."""
    launcher = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"] if ranks > 1 else []
    return subprocess.Popen(
        [*launcher, sys.executable, *map(str, command)],
        cwd=ROOT,
        env=os.environ
        | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
        | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(command: Sequence[str | Path], ranks: int = 1, **environment: str) -> subprocess.CompletedProcess[str]:
    with start(command, ranks, **environment) as process:
        out, err = process.communicate(timeout=1500)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def kill(process: subprocess.Popen[str]) -> None:
    """Sends SIGKILL to a process and all its descendants, including the ranks of mpirun."""
    started = psutil.Process(process.pid)
    for one in (*started.children(recursive=True), started):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with its parent
            one.kill()
    process.communicate()
    shutil.rmtree(mpirun_files(process), ignore_errors=True)  # see tests/conftest.py


def mpirun_files(process: subprocess.Popen[str]) -> Path:
    """The directory in which Open MPI's mpirun keeps its own files while it runs."""
    return Path(os.environ["PRTE_MCA_prte_tmpdir_base"], f"ompi.{process.pid}")  # noqa: SIM112


def wait_until(is_so: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    """Waits until something is so, while a process runs if one is given, and returns what it is."""
    deadline = time.monotonic() + 1500
    while not (value := is_so()):
        assert process is None or process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return value


def contents(directory: Path) -> dict[str, bytes]:
    """Returns the bytes of every file below a directory, by its path there."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def wordpiece_pieces(texts: Iterable[str], size: int) -> list[str]:
    """The pieces of a WordPiece vocabulary that the library trains on texts, without the special ones."""
    tokenizer = tokenizers.BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    tokenizer.train_from_iterator(texts, size, special_tokens=list(SPECIAL_PIECES), show_progress=False)
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    return [piece for piece in sorted(pieces, key=pieces.__getitem__) if piece not in SPECIAL_PIECES]
