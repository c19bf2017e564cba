"""Measures how many segment pairs have no partner, beside the chunks that the paper's procedure makes.

    python -m benchmarks.pair_shares --vocab FILE.model --documents DIR... [--out benchmarks/results/pair_shares]

Both get the same sentences and token counts. The procedure of BERT and ALBERT, written here from its description, fills
a chunk with whole sentences until it has `max_seq_length` - 3 tokens or the document ends. In 0.1 of the documents the
length is drawn instead, from 2 up. A chunk of one sentence has no partner of its own, and what is too long is dropped.
One small drawn length makes a whole novel chunks of one sentence. So the procedure runs with 20 seeds; the page gives
their share together, the smallest and the largest, and the share without drawn lengths.

The last columns show whether lengths tell the order. One is the mean difference between the first whole sentence of a
pair and its last one, and its standard errors. The other is how often a table guesses whether a pair is swapped. Its
cells are the two ratios first to last sentence and first to second segment, in factors of 1.4, which of lead and trail
is longer, and whether each segment begins and ends with a sentence. It is learned on half of the documents and asked on
the other half, both ways. Standard errors are from 0.5. Each is a mean over five seeds, with the smallest and largest.

A second table compares other rules (`shared/span_rules.py`) on rows of the first length, without short spans.
"""

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared import report, span_rules
from common.command_line import Parser, entry_point
from common.errors import UserError
from data_prep.corpus.documents import TRAIN
from data_prep.corpus.work_units import open_corpus, read_texts_with_language
from data_prep.format.pairs import Pairs, make_pairs
from data_prep.format.shards import RULES_VERSION
from data_prep.jobs.make_shards import DEFAULT_MIN_TOKENS
from data_prep.jobs.unit_shards import MIN_SEQ_LENGTH, encode_documents
from data_prep.text.encoder import Encoder
from data_prep.text.vocabulary import Vocabulary

SHORT_PROBABILITY = 0.1
SEEDS = 20
OUR_SEEDS = 5

IntArray = NDArray[np.int64]


def paper_chunks(documents: Sequence[Sequence[int]], capacity: int, short: float, seed: int) -> dict[str, int]:
    """Counts the chunks of the paper's procedure.

    Args:
        documents: tokens of each sentence of each document.
        capacity: tokens in a row without [CLS] and two [SEP].
        short: probability that a document's length is drawn.
        seed: of the drawn lengths.

    Returns:
        "pairs": chunks; "alone": those of one sentence; "tokens": all; "dropped": those that do not fit.
    """
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(("pairs", "alone", "tokens", "dropped"), 0)
    for lengths in documents:
        target = int(rng.integers(2, capacity + 1)) if rng.random() < short else capacity
        tokens = sentences = 0
        for number, length in enumerate(lengths):
            tokens += length
            sentences += 1
            if tokens >= target or number == len(lengths) - 1:
                counts["pairs"] += 1
                counts["alone"] += sentences == 1
                counts["tokens"] += tokens
                counts["dropped"] += max(tokens - capacity, 0)
                tokens = sentences = 0
    return counts


def our_pairs(
    lengths: IntArray, per_document: IntArray, begins_word: NDArray[np.bool_], max_seq_length: int
) -> dict[str, Any]:
    """Counts the pairs of `shards` with the seed 0, and what lengths tell with each of `OUR_SEEDS` seeds.

    Args: see `make_pairs`. "first_minus_last" is in tokens, with standard errors.
    """
    found = []
    for seed in range(OUR_SEEDS):
        made = make_pairs(
            lengths,
            per_document,
            0,
            max_seq_length=max_seq_length,
            short_probability=SHORT_PROBABILITY,
            min_tokens=DEFAULT_MIN_TOKENS,
            seed=seed,
            begins_word=begins_word,
        )
        inside = int((~begins_word[made.starts]).sum())
        found.append(described(made, lengths) | {"begin_inside_a_word": inside})
    return found[0] | {"seeds": found}


def described(made: Pairs, lengths: IntArray) -> dict[str, Any]:
    """Counts pairs, and measures what lengths tell of the order. lengths: tokens of each sentence."""
    tokens, ordered = made.parts.total(), made.parts.b > 0  # (P,)
    bounds = np.unique(np.concatenate([[0], np.cumsum(lengths)]))  # where sentences begin and end
    parts, starts = made.parts.take(np.flatnonzero(ordered)), made.starts[ordered]  # of the O ordered pairs
    begin = starts + parts.lead  # (O,) of a
    end = begin + parts.a + parts.b  # (O,) of b
    last = np.searchsorted(bounds, end) - 1
    first_length = np.diff(bounds)[np.searchsorted(bounds, begin, side="right") - 1]
    last_length = np.diff(bounds)[last]
    difference = first_length - last_length
    whole = [np.isin(place, bounds).astype(int) for place in (begin, begin + parts.a, end)]
    fragments = 1 + np.sign(parts.lead - parts.trail)
    unswapped = _cells(first_length / last_length, parts.a / parts.b, (whole[0], whole[1]), (whole[1], whole[2]))
    swapped = _cells(last_length / first_length, parts.b / parts.a, (whole[1], whole[2]), (whole[0], whole[1]))
    guessed = guess(3 * unswapped + fragments, 3 * swapped + fragments, made.documents[ordered] % 2 == 1)
    return {
        "pairs": len(made),
        "alone": int((~ordered).sum()),
        "tokens": int(tokens.sum()),
        "first_minus_last": float(difference.sum() / max(len(difference), 1)),
        "standard_error": float((difference.var() / len(difference)) ** 0.5) if len(difference) else 0.0,
        "guessed": guessed,
        "guess_errors": (guessed - 0.5) / (0.5 / max(len(difference), 1) ** 0.5),
    }


def _cells(
    sentences: NDArray[np.float64], segments: NDArray[np.float64], *whole: tuple[IntArray, IntArray]
) -> IntArray:
    """The cell of each pair in the table, from two ratios and whether segments begin and end with a sentence."""
    cell = np.zeros(len(sentences), np.int64)
    for ratio in (sentences, segments):
        cell = cell * 13 + np.clip(np.rint(2 * np.log2(ratio)), -6, 6).astype(np.int64) + 6
    for flag in (flag for segment in whole for flag in segment):
        cell = cell * 2 + flag
    return cell


def guess(unswapped: IntArray, swapped: IntArray, second_half: NDArray[np.bool_]) -> float:
    """Returns the share of pairs of which the table guesses right whether they are swapped.

    Args:
        unswapped, swapped: int64[O], the cell of each pair if it is not swapped, and if it is.
        second_half: bool[O], the half of each pair. What one half teaches is asked of the other.
    """
    rng = np.random.default_rng(0)
    labels = rng.random(len(unswapped)) < 0.5
    shown = np.where(labels, swapped, unswapped)
    size = int(max(unswapped.max(initial=0), swapped.max(initial=0))) + 1
    right = 0
    for known in (second_half, ~second_half):
        more = np.bincount(swapped[known], minlength=size) - np.bincount(unswapped[known], minlength=size)
        found = more[shown[~known]]
        answers = np.where(found == 0, rng.random(len(found)) < 0.5, found > 0)
        right += int((answers == labels[~known]).sum())
    return right / max(len(unswapped), 1)


def paper_shares(documents: Sequence[Sequence[int]], capacity: int) -> dict[str, float]:
    """Shares of chunks of one sentence and of dropped tokens, over all seeds and without drawn lengths."""
    runs = [paper_chunks(documents, capacity, SHORT_PROBABILITY, seed) for seed in range(SEEDS)]
    shares = [run["alone"] / run["pairs"] for run in runs]
    undrawn = paper_chunks(documents, capacity, 0.0, 0)
    return {
        "alone": sum(run["alone"] for run in runs) / sum(run["pairs"] for run in runs),
        "least": min(shares),
        "most": max(shares),
        "without_drawn_lengths": undrawn["alone"] / undrawn["pairs"],
        "dropped": sum(run["dropped"] for run in runs) / sum(run["tokens"] for run in runs),
    }


def measure(documents: Path, encoder: Encoder, max_seq_lengths: Sequence[int]) -> dict[str, Any]:
    """Returns the counts for the train split of one directory of documents."""
    parts = [
        encode_documents(read_texts_with_language(unit), encoder) for unit in open_corpus([documents], TRAIN).units
    ]
    tokens, lengths, per_document = (np.concatenate([part[index] for part in parts]) for index in range(3))
    begins_word = ~encoder.vocabulary.continues_word[tokens]
    listed = [sentences.tolist() for sentences in np.split(lengths, np.cumsum(per_document)[:-1])]
    return {
        "documents": len(per_document),
        "sentences": len(lengths),
        "tokens": len(tokens),
        "lengths": {
            str(length): {
                "here": our_pairs(lengths, per_document, begins_word, length),
                "paper": paper_shares(listed, length - 3),
            }
            for length in max_seq_lengths
        },
        "rules": {
            name: described(
                span_rules.apply(rule, max_seq_lengths[0] - 3, lengths, per_document, DEFAULT_MIN_TOKENS, halve),
                lengths,
            )
            for name, (rule, halve) in span_rules.RULES.items()
        },
    }


def _over(seeds: list[dict[str, float]], name: str, form: str) -> str:
    """The mean of a measurement over the seeds, the smallest and the largest."""
    values = [seed[name] for seed in seeds]
    return f"{sum(values) / len(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def markdown(result: dict[str, Any]) -> str:
    """Returns the counts as a table."""
    lines = [
        f"{result['date']}; vocabulary of {result['vocabulary_size']:,} pieces with sha256 "
        f"{result['vocabulary_sha256'][:16]}; rules of version {result['rules_version']}. Shares of the pairs, and of "
        "the tokens that the paper's procedure drops; here none is dropped.",
        "",
        "| documents | tokens in a sentence | row | pairs | no partner | the paper's procedure (by seed) | without "
        "drawn lengths | drops | begin inside a word | first sentence minus last (by seed) | guessed | "
        "standard errors |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, corpus in result["corpora"].items():
        for length, found in corpus["lengths"].items():
            here, paper = found["here"], found["paper"]
            lines.append(
                f"| {name} | {corpus['tokens'] / corpus['sentences']:.0f} | {length} | {here['pairs']:,} | "
                f"{here['alone'] / here['pairs']:.1%} | "
                f"{paper['alone']:.1%} ({paper['least']:.1%} to {paper['most']:.1%}) | "
                f"{paper['without_drawn_lengths']:.1%} | {paper['dropped']:.1%} | "
                f"{here['begin_inside_a_word'] / here['pairs']:.1%} | "
                f"{_over(here['seeds'], 'first_minus_last', '+.2f')} | {_over(here['seeds'], 'guessed', '.3f')} | "
                f"{_over(here['seeds'], 'guess_errors', '+.1f')} |"
            )
    lines += [
        "",
        "Other rules, on rows of the first length and without short spans:",
        "",
        "| documents | spans end | pairs | no partner | tokens in a pair | first sentence minus last | guessed | "
        "standard errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, corpus in result["corpora"].items():
        lines += [
            f"| {name} | {rule} | {found['pairs']:,} | {found['alone'] / found['pairs']:.1%} | "
            f"{found['tokens'] / found['pairs']:.0f} | {found['first_minus_last']:+.2f} | {found['guessed']:.3f} | "
            f"{found['guess_errors']:+.1f} |"
            for rule, found in corpus["rules"].items()
        ]
    return "\n".join(lines)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line. UserError: a mistake in it."""
    p = Parser(prog="python -m benchmarks.pair_shares", description="Pairs without a partner.")
    p.add_argument("--vocab", required=True, type=Path, metavar="FILE", help=".model file that `vocab` wrote")
    p.add_argument("--documents", required=True, nargs="+", type=Path, metavar="DIR", help="each measured alone")
    p.add_argument("--max-seq-length", nargs="+", type=int, default=[128, 512], metavar="N", help="(128 512)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    args = p.parse_all(argv)
    if min(args.max_seq_length) < MIN_SEQ_LENGTH:
        raise UserError(f"--max-seq-length is {min(args.max_seq_length)}; give {MIN_SEQ_LENGTH} or more")
    names = [path.absolute().name for path in args.documents]
    if len(set(names)) < len(names):
        raise UserError(f"two of the --documents have the same name ({', '.join(names)}); rename one")
    return args


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parse(argv)
    vocabulary = Vocabulary.load(args.vocab)
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "vocabulary_size": len(vocabulary),
        "vocabulary_sha256": vocabulary.sha256,
        "rules_version": RULES_VERSION,
        "corpora": {
            path.absolute().name: measure(path, Encoder(vocabulary), args.max_seq_length) for path in args.documents
        },
    }
    report.publish(args.out, result, markdown(result), "Pairs without a partner")


if __name__ == "__main__":
    sys.exit(main())
