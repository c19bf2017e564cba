"""Trains a vocabulary on documents.

    python -m data_prep vocab --documents DIR... --out FILE.model [--size 30000]
    mpirun -n 8 python -m data_prep vocab ...       (the ranks share the sampling; rank 0 trains)

Beside FILE.model stand FILE.vocab (pieces and scores as text) and FILE.json (how it was made).
"""

import argparse
import hashlib
import io
import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from data_prep import batch
from data_prep.atomic import replacing, write_text
from data_prep.documents import TRAIN
from data_prep.errors import UserError
from data_prep.ledger import Ledger, Record, describe_differences
from data_prep.text import normalize, split_sentences
from data_prep.units import Corpus, Unit, open_corpus, read_texts
from data_prep.vocabulary import NORMALIZATION, SPECIAL_PIECES, Vocabulary

USER_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
CHARACTER_COVERAGE = 0.99995
MOST_SENTENCES = 10_000_000
LEAST_SENTENCE_BYTES = 2  # a character and what separates it from the next
LONGEST_SENTENCE = 1 << 16  # bytes; SentencePiece passes over longer ones
# The sums over the sentences are added up thread by thread, so their rounding depends on the number of threads. It
# is the published vocabulary's, on every machine.
TRAINING_THREADS = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep vocab`."""
    parser.add_argument(
        *("--documents",),
        type=Path,
        nargs="+",
        required=True,
        metavar="DIR",
        help="directories that `extract` wrote; only their train split is read",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .model file to write")
    parser.add_argument("--size", type=int, default=30_000, metavar="N", help="pieces (default: %(default)s)")
    parser.add_argument(
        *("--sentences",),
        type=int,
        default=MOST_SENTENCES,
        metavar="N",
        help="train on at most this many, sampled evenly (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of that sample (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Trains `args.out`, or recognises the one that is there."""
    with batch.launch() as ranks:
        plan = ranks.on_root(lambda: _plan(args))
        if plan is None:
            return
        corpus, options = plan
        scratch = _scratch(args.out)
        sample, described = _sample(ranks, corpus, options, scratch)
        ranks.on_root(lambda: _finish(args.out, sample, options, described, scratch))


def _scratch(out: Path) -> Path:
    return out.with_name(f".{out.name}.sample")


def _plan(args: argparse.Namespace) -> tuple[Corpus, dict[str, Any]] | None:
    """What is to be done and by which options; None where it is done already."""
    least = len(SPECIAL_PIECES) + len(USER_SYMBOLS) + 1
    if args.size < least:
        raise UserError(f"--size is {args.size}; {least} is the least, for the special pieces alone")
    if args.out.is_dir():
        raise UserError(f"--out {args.out} is a directory; give a file in it, such as {args.out / 'vocabulary.model'}")
    if args.out.suffix != ".model":
        raise UserError(f"--out is {args.out}; give it a name that ends in .model")
    if args.sentences < 1 or not 0 <= args.seed < 2**63:
        raise UserError("--sentences and --seed must be positive numbers; leave them out for the defaults")
    corpus = open_corpus(args.documents, TRAIN)
    options = {
        "size": args.size,
        "sentences": args.sentences,
        "seed": args.seed,
        "normalization": NORMALIZATION,
        "documents_digest": corpus.digest,
    }
    if args.out.exists():
        there = _record_of(args.out)
        differences = describe_differences(there["options"], options) or _changed_since(args.out, there)
        if differences:
            raise UserError(f"{args.out} is another vocabulary ({differences}); use another --out or delete it")
        shutil.rmtree(_scratch(args.out), ignore_errors=True)  # a kill may have come between the model and this
        print(f"vocab: {args.out} is complete; nothing to do")
        return None
    return corpus, options


def _record_of(model: Path) -> dict[str, Any]:
    """How a vocabulary was made, from the file beside it. UserError: there is none, or it is damaged."""
    path = model.with_suffix(".json")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record["options"], dict) and isinstance(record["model_sha256"], str):
            return record
        reason = "it holds something else"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise UserError(f"{path} does not say how {model} was made ({reason}); use another --out or delete both")


def _changed_since(model: Path, record: dict[str, Any]) -> str:
    changed = hashlib.sha256(model.read_bytes()).hexdigest() != record["model_sha256"]
    return "its content is not what was recorded" if changed else ""


def sentences_of(unit: Unit) -> Iterator[str]:
    """The normalised sentences of a unit, in order."""
    for text in read_texts(unit):
        yield from filter(None, map(normalize, split_sentences(text)))


def quotas(counts: list[int], most: int) -> list[int]:
    """How many of each unit's sentences are taken: all, or `most` altogether in proportion to `counts`."""
    total = sum(counts)
    if total <= most:
        return list(counts)
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    shares = [end * most // total for end in ends]
    return [last - first for first, last in itertools.pairwise(shares)]


def choose(count: int, quota: int, seed: int, unit: int) -> np.ndarray:
    """Which `quota` of a unit's `count` sentences are taken: int64[quota], ascending, uniform without replacement."""
    generator = np.random.Generator(np.random.Philox(key=[seed, 2**63 + unit]))
    return np.sort(generator.choice(count, quota, replace=False, shuffle=False))


def _sample(
    ranks: batch.Ranks, corpus: Corpus, options: dict[str, Any], scratch: Path
) -> tuple[list[Path], dict[str, Any]]:
    """Writes the sampled sentences of each unit to a file; on rank 0 returns the files in order, and the method."""
    options = {name: value for name, value in options.items() if name != "size"}
    sizes = [unit.text_bytes for unit in corpus.units]
    wanted: list[int] | None = None
    if corpus.text_bytes > LEAST_SENTENCE_BYTES * options["sentences"]:  # else it cannot hold more than that
        counting = Ledger(scratch / "counts")
        ranks.on_root(lambda: counting.begin(options, discard_others=True))
        counted = ranks.run(
            corpus.units,
            lambda _, unit: {"documents": unit.documents, "sentences": sum(1 for _ in sentences_of(unit))},
            counting,
            sizes=sizes,
            description="vocab: counting sentences",
        )
        wanted = ranks.on_root(lambda: quotas([r["sentences"] for r in counted], options["sentences"]))

    def write_sample(index: int, unit: Unit) -> Record:
        sentences = list(sentences_of(unit))
        quota = len(sentences) if wanted is None else wanted[index]
        path = scratch / "sentences" / f"{index:06d}.txt"
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            for chosen in choose(len(sentences), quota, options["seed"], index).tolist():
                file.write(sentences[chosen] + "\n")
        return {
            "files": [{"name": path.name, "bytes": path.stat().st_size}],
            "documents": unit.documents,
            "sentences": len(sentences),
            "sampled": quota,
        }

    sampling = Ledger(scratch / "sentences")
    ranks.on_root(lambda: sampling.begin(options, discard_others=True))
    records = ranks.run(corpus.units, write_sample, sampling, sizes=sizes, description="vocab: sampling sentences")
    total, sampled = sum(r["sentences"] for r in records), sum(r["sampled"] for r in records)
    method = "all sentences"
    if sampled < total:
        method = (
            f"{sampled:,} of {total:,} sentences: of each of {len(records)} units of work the same share, "
            f"uniform without replacement, seed {options['seed']}"
        )
    files = [scratch / "sentences" / file["name"] for record in records for file in record["files"]]
    return files, {"sentences": total, "sampled": sampled, "method": method}


def _finish(out: Path, sample: list[Path], options: dict[str, Any], described: dict[str, Any], scratch: Path) -> None:
    """Rank 0: trains, and writes the model last."""
    print(f"vocab: training {options['size']:,} pieces on {described['method']}", flush=True)
    try:
        vocabulary = train(_lines(sample), options["size"])
    except UserError:
        shutil.rmtree(scratch)
        raise
    scores = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialized)
    listing = "".join(f"{piece}\t{scores.get_score(i):g}\n" for i, piece in enumerate(vocabulary.pieces))
    record = {"options": options, "sample": described, "model_sha256": vocabulary.sha256}
    write_text(out.with_suffix(".vocab"), listing)
    write_text(out.with_suffix(".json"), json.dumps(record, indent=1) + "\n")
    with replacing(out) as temporary:
        temporary.write_bytes(vocabulary.serialized)
    shutil.rmtree(scratch)
    print(f"vocab: wrote {out}: {len(vocabulary):,} pieces, sha256 {vocabulary.sha256}")


def _lines(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\n")


def train(sentences: Iterator[str], size: int) -> Vocabulary:
    """Trains ALBERT's vocabulary of `size` pieces on normalised sentences; the same ones always give the same bytes.

    Raises:
        UserError: the text has too few different pieces for `size`, or too many characters.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=CHARACTER_COVERAGE,
            normalization_rule_name="identity",  # the sentences are normalised already
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=SPECIAL_PIECES[0],
            unk_piece=SPECIAL_PIECES[1],
            control_symbols=list(SPECIAL_PIECES[2:]),
            user_defined_symbols=list(USER_SYMBOLS),
            byte_fallback=False,
            max_sentence_length=LONGEST_SENTENCE,
            num_threads=TRAINING_THREADS,
            minloglevel=3,
        )
    except (RuntimeError, OSError) as error:
        raise _explained(str(error), size) from error
    return Vocabulary(model.getvalue())


def _explained(message: str, size: int) -> Exception:
    """SentencePiece's message in terms of this command's flags."""
    if found := re.search(r"Vocabulary size too high .*?<= (\d+)", message):
        return UserError(
            f"--size {size} is more than this text has pieces for; use --size {found[1]} or less, or more text"
        )
    if found := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return UserError(f"--size {size} is less than the characters of this text need; use --size {found[2]} or more")
    return UserError(f"SentencePiece cannot train on this text ({message}); give it more text or a smaller --size")
