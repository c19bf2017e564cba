"""The sentences that a vocabulary is trained on: all of the documents, or an even sample of them."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Len

from common.files.atomic import replacing
from common.files.checksums import FileEntry, describe_file
from common.files.json_files import Count
from common.normalization import ALBERT_NORMALIZATION, Normalization
from data_prep.corpus.work_units import Corpus, WorkUnit, read_texts_with_language
from data_prep.mpi import executor
from data_prep.mpi.ledger import Ledger, UnitRecord
from data_prep.text.normalization import normalize
from data_prep.text.sentences import iterate_sentences

MIN_SENTENCE_BYTES = 2  # one character and one separator


@dataclass(frozen=True, kw_only=True)
class _CountRecord(UnitRecord):
    """The record of a unit whose sentences were counted."""

    sentences: Count


@dataclass(frozen=True, kw_only=True)
class _SampleRecord(UnitRecord):
    """The record of a unit whose sentences were sampled into a file."""

    sentences: Count
    sampled: Count
    characters: Count
    files: Annotated[list[FileEntry], Len(1, 1)]


def sentences_of(unit: WorkUnit, normalization: Normalization = ALBERT_NORMALIZATION) -> Iterator[str]:
    """Yields the normalised sentences of a work unit, in order."""
    for text, language in read_texts_with_language(unit):
        yield from filter(None, (normalize(sentence, normalization) for sentence in iterate_sentences(text, language)))


def quotas(counts: list[int], max_total: int) -> list[int]:
    """Returns how many of each unit's sentences to take: all, or `max_total` altogether in proportion to `counts`."""
    total = sum(counts)
    if total <= max_total:
        return list(counts)
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    bounds = [end * max_total // total for end in ends]
    return [last - first for first, last in itertools.pairwise(bounds)]


def choose(count: int, quota: int, seed: int, unit: int) -> np.ndarray:
    """Draws `quota` of a unit's `count` sentences, uniformly without replacement: int64[quota], ascending."""
    generator = np.random.Generator(np.random.Philox(key=[seed, 2**63 + unit]))
    return np.sort(generator.choice(count, quota, replace=False, shuffle=False))


def sample_sentences(
    ranks: executor.Ranks, corpus: Corpus, options: dict[str, Any], scratch: Path, normalization: Normalization
) -> tuple[list[Path], dict[str, Any]]:
    """Writes the sampled sentences of each unit to a file. On rank 0 returns the files in order, and a description."""
    options = {name: value for name, value in options.items() if name != "size"}
    sizes = [unit.text_bytes for unit in corpus.units]
    wanted: list[int] | None = None
    if corpus.text_bytes > MIN_SENTENCE_BYTES * options["sentences"]:  # a smaller corpus cannot contain more sentences
        counting = Ledger(scratch / "counts", _CountRecord)
        ranks.on_root(lambda: counting.begin(options, discard_others=True))
        counted = ranks.run(
            corpus.units,
            lambda _, unit: _CountRecord(
                documents=unit.documents, files=[], sentences=sum(1 for _ in sentences_of(unit, normalization))
            ),
            counting,
            sizes=sizes,
            description="vocab: counting sentences",
        )
        wanted = ranks.on_root(lambda: quotas([record.sentences for record in counted], options["sentences"]))

    def write_sample(index: int, unit: WorkUnit) -> _SampleRecord:
        sentences = list(sentences_of(unit, normalization))
        quota = len(sentences) if wanted is None else wanted[index]
        path = scratch / "sentences" / f"{index:06d}.txt"
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            sampled = [sentences[chosen] for chosen in choose(len(sentences), quota, options["seed"], index).tolist()]
            file.writelines(f"{sentence}\n" for sentence in sampled)
        return _SampleRecord(
            files=[describe_file(path)],
            documents=unit.documents,
            sentences=len(sentences),
            sampled=quota,
            characters=sum(map(len, sampled)),
        )

    sampling = Ledger(scratch / "sentences", _SampleRecord, content=True)
    ranks.on_root(lambda: sampling.begin(options, discard_others=True))
    records = ranks.run(corpus.units, write_sample, sampling, sizes=sizes, description="vocab: sampling sentences")
    total, sampled = sum(record.sentences for record in records), sum(record.sampled for record in records)
    method = "all sentences"
    if sampled < total:
        method = (
            f"{sampled:,} of {total:,} sentences: of each of {len(records)} units of work the same share, "
            f"uniform without replacement, seed {options['seed']}"
        )
    files = [scratch / "sentences" / file.name for record in records for file in record.files]
    characters = sum(record.characters for record in records)
    return files, {"sentences": total, "sampled": sampled, "characters": characters, "method": method}
