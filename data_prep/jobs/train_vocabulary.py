"""Trains a vocabulary on documents: a SentencePiece model by the unigram method (Kudo, arXiv 1804.10959).

    python -m data_prep vocab --documents DIR... --out FILE.model [--size 30000]
    mpirun -n 8 python -m data_prep vocab ...

The ranks share the sampling; rank 0 trains. It also writes FILE.json, which says how the vocabulary was made.
"""

import argparse
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.command_line import bounded, natural, positive
from common.errors import UserError
from common.files.atomic import write_bytes, write_text
from common.files.json_files import check_as, read_bytes, read_object
from common.files.locks import beside
from common.progress_bar import Progress
from common.rng import UniformStream
from data_prep.corpus.documents import TRAIN
from data_prep.corpus.work_units import Corpus, WorkUnit, open_corpus, read_texts_with_language
from data_prep.mpi import Ranks, describe_differences, launch, run_job
from data_prep.text import language_code
from data_prep.text.normalize import ALBERT_NORMALIZATION, Normalization, normalize
from data_prep.text.sentencepiece_vocabulary import (
    BYTES,
    MAX_SENTENCE_BYTES,
    MIN_SIZE,
    default_coverage,
    train_sentencepiece,
)
from data_prep.text.sentences import iterate_sentences
from data_prep.text.vocabulary import MAX_PIECES

MAX_SENTENCES = 4_000_000
"""Default of --sentences."""
BYTES_PER_CHARACTER = 27
"""Memory of the process for each character of the sentences: 20.8 to 27 measured, of 7 to 30 million characters."""
QUIET_SECONDS = 10.0  # a training that takes less shows no progress
SUFFIX = ".model"

coverage = bounded(float, "share", lambda share: 0.98 <= share <= 1, "0.98 to 1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep vocab`."""
    flag = parser.add_argument
    flag("--documents", type=Path, nargs="+", required=True, metavar="DIR", help="directories that `extract` wrote")
    flag("--out", type=Path, required=True, metavar="FILE", help=".model file to write")
    flag("--size", type=positive, default=30_000, metavar="N", help="number of pieces (default: %(default)s)")
    flag("--sentences", type=positive, default=MAX_SENTENCES, metavar="N", help="most to train on (%(default)s)")
    flag("--language", type=language_code, metavar="CODE", help="of the documents (default: as `extract` recorded)")
    flag("--keep-case", action="store_true", help="keep capitals; ALBERT's text is in lower case")
    flag("--keep-accents", action="store_true", help="keep accents; ALBERT's text has none")
    flag("--character-coverage", type=coverage, metavar="SHARE", help="of characters that are pieces (docs/data.md)")
    flag("--byte-fallback", action="store_true", help="spell other characters as bytes, with 256 of the pieces")
    flag("--seed", type=natural, default=0, metavar="N", help="seed of the sample (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Trains the vocabulary `args.out`, or recognises a complete one."""
    with launch() as ranks:
        normalization = Normalization(args.keep_case, args.keep_accents)
        corpus, options = ranks.on_root(lambda: _plan(args, normalization))

        def work() -> None:
            sample, described = sample_sentences(ranks, corpus, options, normalization)
            ranks.on_root(lambda: _finish(args.out, sample, options, described, normalization))

        run_job(ranks, args.out, beside(args.out), lambda: _is_complete(args.out, options), work)


def _plan(args: argparse.Namespace, normalization: Normalization) -> tuple[Corpus, dict[str, Any]]:
    min_size = MIN_SIZE + BYTES * args.byte_fallback
    if not min_size <= args.size <= MAX_PIECES:
        raise UserError(f"--size is {args.size}; choose one from {min_size} to {MAX_PIECES}: ids have 16 bits")
    if args.out.is_dir() or args.out.suffix != SUFFIX:
        raise UserError(f"--out is {args.out}; give a file whose name ends in {SUFFIX}")
    corpus = open_corpus(args.documents, TRAIN, args.language)
    options = {name: getattr(args, name) for name in ("size", "sentences", "seed")} | {
        "normalization": normalization.description,
        "documents_digest": corpus.digest,
        "language": corpus.language,
        "character_coverage": args.character_coverage or default_coverage(corpus.language),
        "byte_fallback": args.byte_fallback,
    }
    return corpus, options


@dataclass(frozen=True)
class _VocabularyRecord:
    """The keys of FILE.json that are read again."""

    options: dict[str, Any]
    model_sha256: str


def _is_complete(out: Path, options: dict[str, Any]) -> bool:
    """Whether `out` is the vocabulary of these options. UserError: it is another one, or no record tells."""
    path = out.with_suffix(".json")
    if not os.path.lexists(out) and not os.path.lexists(path):
        return False
    remedy = f"it should say how {out} was made; use another --out, or move both away"
    record = check_as(read_object(path, remedy), _VocabularyRecord, path, remedy, extra="ignore")
    differences = describe_differences(record.options, options)
    if not differences and out.exists() and hashlib.sha256(read_bytes(out, remedy)).hexdigest() != record.model_sha256:
        differences = "its content is not what was recorded"
    if differences:
        raise UserError(f"{out} is another vocabulary ({differences}); use another --out or delete it")
    return out.exists()


def sentences_of(unit: WorkUnit, normalization: Normalization = ALBERT_NORMALIZATION) -> Iterator[str]:
    """Yields the normalised sentences of a work unit, in order."""
    for text, language in read_texts_with_language(unit):
        yield from filter(None, (normalize(sentence, normalization) for sentence in iterate_sentences(text, language)))


def cut(sentence: str) -> list[str]:
    """Returns a sentence, or its parts if SentencePiece would skip it as too long: cut at white space, if there is."""
    if len(sentence.encode()) <= MAX_SENTENCE_BYTES:
        return [sentence]
    parts, limit = [], MAX_SENTENCE_BYTES // 4  # bytes of a character, at most
    while len(sentence) > limit:
        end = sentence.rfind(" ", 1, limit + 1)
        parts.append(sentence[: end if end > 0 else limit])
        sentence = sentence[len(parts[-1]) :].lstrip()
    return [*parts, sentence] if sentence else parts


def quotas(counts: list[int], max_total: int) -> list[int]:
    """Returns how many of each unit's sentences to take: all, or `max_total` altogether in proportion to `counts`."""
    total = sum(counts)
    if total <= max_total:
        return list(counts)
    bounds = [end * max_total // total for end in itertools.accumulate(counts, initial=0)]
    return [last - first for first, last in itertools.pairwise(bounds)]


def choose(count: int, quota: int, seed: int, unit: int) -> np.ndarray:
    """Draws `quota` of a unit's `count` sentences, uniformly without replacement: int64[quota], ascending."""
    return np.sort(np.argsort(UniformStream(seed, 2**63 + unit).take(count), kind="stable")[:quota])


def sample_sentences(
    ranks: Ranks, corpus: Corpus, options: dict[str, Any], normalization: Normalization
) -> tuple[list[str], dict[str, Any]]:
    """On rank 0 returns the sampled sentences of each unit, one a line, and a description of the sample."""
    sizes = [unit.text_bytes for unit in corpus.units]

    def count(_: int, unit: WorkUnit) -> tuple[int, int]:
        parts = [len(cut(sentence)) for sentence in sentences_of(unit, normalization)]
        return sum(parts), sum(number > 1 for number in parts)

    counted = ranks.run(corpus.units, count, None, sizes=sizes, description="vocab: counting sentences")
    counts = [number for number, _ in counted]
    wanted = ranks.on_root(lambda: quotas(counts, options["sentences"]))

    def sample(index: int, unit: WorkUnit) -> str:
        sentences = [part for sentence in sentences_of(unit, normalization) for part in cut(sentence)]
        chosen = choose(len(sentences), wanted[index], options["seed"], index)
        return "\n".join(sentences[place] for place in chosen.tolist())

    texts = ranks.run(corpus.units, sample, None, sizes=sizes, description="vocab: sampling sentences")
    total, sampled = sum(counts), sum(wanted)
    method = "all sentences"
    if sampled < total:
        method = (
            f"{sampled:,} of {total:,} sentences: of each of {len(texts)} units of work the same share, "
            f"uniform without replacement, seed {options['seed']}"
        )
    characters = sum(len(text) - text.count("\n") for text in texts)
    described = {"sentences": total, "sampled": sampled, "characters": characters, "method": method}
    return texts, described | {"cut": sum(long for _, long in counted)}


def _finish(
    out: Path, sample: list[str], options: dict[str, Any], described: dict[str, Any], normalization: Normalization
) -> None:
    """On rank 0: trains the vocabulary, and writes its files, the model last."""
    memory = f"it needs up to {BYTES_PER_CHARACTER * described['characters'] / 1e9:.2f} GB of memory"
    if described["cut"]:
        print(f"note: {described['cut']:,} sentences of more than {MAX_SENTENCE_BYTES:,} bytes were cut")
    print(f"vocab: training {options['size']:,} pieces on {described['method']}; {memory}", flush=True)
    # The library says nothing on the way: sentences are counted while it reads them, then only the time goes on.
    with Progress("vocab: training", described["sampled"], "sentences read", quiet_seconds=QUIET_SECONDS) as shown:
        how = [options[name] for name in ("language", "character_coverage", "byte_fallback")]
        vocabulary = train_sentencepiece(_sentences(sample, shown), options["size"], normalization, *how)
    record = {"options": options, "sample": described, "model_sha256": vocabulary.sha256}
    write_text(out.with_suffix(".json"), json.dumps(record, indent=1) + "\n")  # first: it says that the other is ours
    write_bytes(out, vocabulary.serialized)
    print(f"vocab: wrote {out}: {len(vocabulary):,} pieces, sha256 {vocabulary.sha256}")


def _sentences(texts: list[str], progress: Progress) -> Iterator[str]:
    """Yields the sentences in the texts, and counts them on `progress`."""
    for text in filter(None, texts):
        for sentence in text.split("\n"):
            yield sentence
            progress.update()
