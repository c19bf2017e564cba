"""Trains a vocabulary on documents: a SentencePiece model by the unigram method (Kudo, arXiv 1804.10959), or WordPiece.

    python -m data_prep vocab --documents DIR... --out FILE.model [--size 30000]
    python -m data_prep vocab --documents DIR... --type wordpiece --out tokenizer.json
    mpirun -n 8 python -m data_prep vocab ...       (the ranks share the sampling; rank 0 trains)

It also writes FILE.vocab (the pieces as text) and FILE.json (how the vocabulary was made; FILE.record.json beside a
tokenizer.json).
"""

import argparse
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import sentencepiece
from annotated_types import Len

from common import environment
from common.command_line import natural, positive
from common.errors import UserError
from common.files import owned
from common.files.atomic import replacing, write_text
from common.files.checksums import FileEntry, describe_file
from common.files.json_files import Count, check_as, read_bytes, read_object
from common.files.locks import beside
from common.normalization import ALBERT_NORMALIZATION, Normalization
from common.progress import Progress
from data_prep.corpus.documents import TRAIN
from data_prep.corpus.work_units import Corpus, WorkUnit, open_corpus, read_texts_with_language
from data_prep.mpi.executor import Ranks, launch, run_job
from data_prep.mpi.ledger import Ledger, UnitRecord, describe_differences, discard_work
from data_prep.text.languages import ENGLISH
from data_prep.text.normalization import normalize
from data_prep.text.sentencepiece_vocabulary import SPECIAL_PIECES, TRAINING_THREADS, USER_SYMBOLS, train_sentencepiece
from data_prep.text.sentences import iterate_sentences
from data_prep.text.vocabulary import MAX_PIECES, Vocabulary
from data_prep.text.wordpiece_vocabulary import WordPieceRules, train_wordpiece

MAX_SENTENCES = 4_000_000
"""Default of --sentences. At 180 characters a sentence, as in novels, training on them needs 13 GB."""
BYTES_PER_CHARACTER = 18
"""Memory of the training for each character of the sentences. Measured: 8 for 3 million characters, 16 for 7 and for 11
million, 16.5 for 108 million."""
QUIET_SECONDS = 10.0
"""A training that takes less shows no progress."""
_SUFFIXES = {"sentencepiece": ".model", "wordpiece": ".json"}
MIN_SENTENCE_BYTES = 2  # one character and one separator
THREAD_BYTES = 80 << 20
"""Address space of a thread: its stack, and its share of the allocator. Hardly any of it becomes memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep vocab`."""
    parser.add_argument(
        "--documents", type=Path, nargs="+", required=True, metavar="DIR", help="directories that `extract` wrote"
    )
    parser.add_argument(
        "--type", choices=tuple(_SUFFIXES), default="sentencepiece", help="kind of vocabulary (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help=".model file to write; .json for wordpiece"
    )
    parser.add_argument(
        "--size", type=positive, default=30_000, metavar="N", help="number of pieces (default: %(default)s)"
    )
    parser.add_argument(
        "--sentences", type=positive, default=MAX_SENTENCES, metavar="N", help="most to train on (default: %(default)s)"
    )
    parser.add_argument(
        "--language", metavar="CODE", help="of the documents, such as de (default: what `extract` recorded)"
    )
    parser.add_argument("--keep-case", action="store_true", help="keep capitals; ALBERT's text is in lower case")
    parser.add_argument("--keep-accents", action="store_true", help="keep accents; ALBERT's text has none")
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="seed of the sample (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    """Trains the vocabulary `args.out`, or recognises a complete one."""
    with launch() as ranks:
        corpus, options = ranks.on_root(lambda: _plan(args))
        scratch = args.out.with_name(f".{args.out.name}.sample")
        normalization = _normalization(args)

        def work() -> None:
            ranks.on_root(lambda: _check_beside(args.out, options))
            ranks.on_root(lambda: owned.take_workplace(scratch, "data_prep vocab"))
            sample, described = sample_sentences(ranks, corpus, options, scratch, normalization)
            ranks.on_root(lambda: _finish(args.out, sample, options, described, scratch, normalization))

        run_job(
            ranks,
            output=args.out,
            lock=beside(args.out),
            scratch=scratch,
            is_complete=lambda: _is_complete(args.out, options),
            work=work,
            clear=lambda: discard_work(scratch),
            complete_message=f"vocab: {args.out} is complete; nothing to do",
        )


def _normalization(args: argparse.Namespace) -> Normalization:
    return Normalization(args.keep_case, args.keep_accents, of_bert=args.type == "wordpiece")


def _plan(args: argparse.Namespace) -> tuple[Corpus, dict[str, Any]]:
    """Checks the arguments and returns corpus and options."""
    min_size = len(SPECIAL_PIECES) + len(USER_SYMBOLS) + 1
    if args.size < min_size:
        raise UserError(f"--size is {args.size}; the minimum is {min_size}, for the special pieces alone")
    if args.size > MAX_PIECES:
        raise UserError(f"--size is {args.size}; the maximum is {MAX_PIECES}, because ids are stored in 16 bits")
    suffix = _SUFFIXES[args.type]
    if args.out.is_dir():
        raise UserError(
            f"--out {args.out} is a directory; give a file in it, such as {args.out / 'vocabulary'}{suffix}"
        )
    if args.out.suffix != suffix:
        raise UserError(f"--out is {args.out}; give it a name that ends in {suffix}")
    corpus = open_corpus(args.documents, TRAIN, args.language)
    options = {
        "size": args.size,
        "sentences": args.sentences,
        "seed": args.seed,
        "normalization": _normalization(args).description,
        "documents_digest": corpus.digest,
    }
    if args.type == "wordpiece":
        options["type"] = args.type
    if corpus.language != ENGLISH:
        options["language"] = corpus.language
    return corpus, options


def _is_complete(out: Path, options: dict[str, Any]) -> bool:
    """Whether `out` is the vocabulary of these options. UserError: it is another one."""
    if not out.exists():
        return False
    record = _record_of(out)
    differences = describe_differences(record["options"], options)
    if not differences and _sha256(out) != record["model_sha256"]:
        differences = "its content is not what was recorded"
    if differences:
        raise UserError(f"{out} is another vocabulary ({differences}); use another --out or delete it")
    return True


def _check_beside(out: Path, options: dict[str, Any]) -> None:
    """Raises UserError if FILE.vocab or FILE.json exists and no earlier start of this command wrote it."""
    listing, record = out.with_suffix(".vocab"), _record_path(out)
    for path in (listing, record):
        if os.path.lexists(path) and (not record.is_file() or _record_of(out)["options"] != options):
            raise UserError(f"{path} exists and would be overwritten; use another --out or move it away")
    if listing.exists() and _sha256(listing) != _record_of(out).get("listing_sha256"):
        raise UserError(f"{listing} has changed and would be overwritten; use another --out or move it away")


@dataclass(frozen=True)
class _VocabularyRecord:
    """The keys of FILE.json that are read again. Older versions wrote no `listing_sha256`."""

    options: dict[str, Any]
    model_sha256: str
    listing_sha256: str = ""


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, "move it away, or use another --out")).hexdigest()


def _record_path(out: Path) -> Path:
    return out.with_suffix(".record.json" if out.suffix == ".json" else ".json")


def _record_of(model: Path) -> dict[str, Any]:
    """Reads how a vocabulary was made, from the .json file beside it. UserError: the file is missing or damaged."""
    path = _record_path(model)
    remedy = f"it should say how {model} was made; use another --out or delete both"
    record = read_object(path, remedy)
    check_as(record, _VocabularyRecord, path, remedy, extra="ignore")
    return record


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
    bounds = [end * max_total // total for end in itertools.accumulate(counts, initial=0)]
    return [last - first for first, last in itertools.pairwise(bounds)]


def choose(count: int, quota: int, seed: int, unit: int) -> np.ndarray:
    """Draws `quota` of a unit's `count` sentences, uniformly without replacement: int64[quota], ascending."""
    generator = np.random.Generator(np.random.Philox(key=[seed, 2**63 + unit]))
    return np.sort(generator.choice(count, quota, replace=False, shuffle=False))


def sample_sentences(
    ranks: Ranks, corpus: Corpus, options: dict[str, Any], scratch: Path, normalization: Normalization
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


def _finish(
    out: Path,
    sample: list[Path],
    options: dict[str, Any],
    described: dict[str, Any],
    scratch: Path,
    normalization: Normalization,
) -> None:
    """On rank 0: trains the vocabulary, and writes its files, the model last."""
    needed = 0 if normalization.of_bert else BYTES_PER_CHARACTER * described["characters"]
    memory = f"; it needs up to {needed / 1e9:.1f} GB of memory" if needed else ""
    print(f"vocab: training {options['size']:,} pieces on {described['method']}{memory}", flush=True)
    vocabulary: Vocabulary
    try:
        _check_memory(needed, described["sampled"])
        # The libraries say nothing on the way: sentences are counted while they read them, then only the time goes on.
        with Progress("vocab: training", described["sampled"], "sentences read", quiet_seconds=QUIET_SECONDS) as shown:
            if normalization.of_bert:
                rules = WordPieceRules(not normalization.keep_case, not normalization.keep_accents)
                vocabulary = train_wordpiece(_lines(sample, shown), options["size"], rules)
                listing = "".join(f"{piece}\n" for piece in vocabulary.pieces)
            else:
                language = options.get("language", ENGLISH)
                vocabulary = train_sentencepiece(_lines(sample, shown), options["size"], normalization, language)
                scores = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialized)
                listing = "".join(f"{piece}\t{scores.get_score(i):g}\n" for i, piece in enumerate(vocabulary.pieces))
    except UserError:
        discard_work(scratch)
        raise
    record = {
        "options": options,
        "sample": described,
        "model_sha256": vocabulary.sha256,
        "listing_sha256": hashlib.sha256(listing.encode()).hexdigest(),
    }
    write_text(_record_path(out), json.dumps(record, indent=1) + "\n")  # first: it says that the others are ours
    write_text(out.with_suffix(".vocab"), listing)
    with replacing(out) as temporary:
        temporary.write_bytes(vocabulary.serialized)
    discard_work(scratch)
    print(f"vocab: wrote {out}: {len(vocabulary):,} pieces, sha256 {vocabulary.sha256}")


def _check_memory(needed: int, sentences: int) -> None:
    """Raises UserError if the training needs more memory than there is: the system would kill the process."""
    addresses, threads = environment.available_addresses(), TRAINING_THREADS * THREAD_BYTES
    if addresses is not None and addresses < needed + threads:
        raise UserError(
            f"the training needs up to {(needed + threads) / 1e9:.1f} GB of address space and {addresses / 1e9:.1f} GB "
            "are left; raise the limit (ulimit -v)"
        )
    available = environment.available_bytes()
    if available is None or needed <= available:
        return
    fitting = max(1, int(0.9 * sentences * available / needed))
    raise UserError(
        f"training on {sentences:,} sentences needs up to {needed / 1e9:.1f} GB of memory and {available / 1e9:.1f} GB "
        f"are free; use --sentences {fitting} or less"
    )


def _lines(paths: list[Path], progress: Progress) -> Iterator[str]:
    """Yields the sentences in the files, and counts them on `progress`."""
    for path in paths:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\n")
                progress.update()
