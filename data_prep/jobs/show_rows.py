"""Prints rows of a shard set as text and pieces, part by part, or the sentences of documents.

    python -m data_prep show DIR [-n 3] [--row N]
    python -m data_prep show DIR [-n 3] --sentences

With --sentences, DIR was made by `extract`, and each line is a sentence: pairs are cut between these. Otherwise it
prints what a row stores. Training adds [CLS], [SEP], masks, and the swap of A and B when it reads a row;
`python -m pipeline.show DIR` prints those.
"""

import argparse
import itertools
import textwrap
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError
from common.text import printable, quantity
from data_prep.corpus.documents import TRAIN
from data_prep.corpus.work_units import open_corpus, read_column, read_texts_with_language
from data_prep.format import shards
from data_prep.text.sentences import split_sentences
from data_prep.text.vocabulary import Vocabulary

WIDTH = 110


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `python -m data_prep show`."""
    add_row_arguments(parser)
    parser.add_argument("--sentences", action="store_true", help="DIR has documents: show the sentences of the first N")


def add_row_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments that choose rows of a shard set."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="shard set")
    parser.add_argument("-n", type=int, default=3, metavar="N", help="number of rows (default: 3)")
    parser.add_argument("--row", type=int, metavar="N", help="first row; without it, the rows are spread over the set")


def run(args: argparse.Namespace) -> None:
    """Prints `args.n` rows, or the sentences of as many documents."""
    if args.sentences:
        print("\n".join(lines_of_documents(args)))
        return
    rows = shards.open_shards(args.directory)
    vocabulary = shards.read_vocabulary(args.directory, rows.manifest)
    for index in rows_wanted(args, len(rows)):
        print("\n".join(describe_row(index, rows.row(index), rows.manifest.max_seq_length, vocabulary)))
    print("the swap and the masks are sampled in training: `python -m pipeline.show DIR` prints them")


def lines_of_documents(args: argparse.Namespace) -> Iterator[str]:
    """Yields the lines that show the first documents of the train split. UserError: there are none."""
    if args.n < 1 or args.row is not None:
        raise UserError("--sentences shows the first documents; give -n of 1 or more, and no --row")
    corpus = open_corpus([args.directory], TRAIN)
    of_units = (zip(read_texts_with_language(unit), read_column(unit, "title"), strict=True) for unit in corpus.units)
    documents = ((*text, title) for text, title in itertools.chain.from_iterable(of_units))
    for number, (text, language, title) in enumerate(itertools.islice(documents, args.n)):
        sentences = split_sentences(text, language)
        yield f"document {number}, {quantity(len(sentences), 'sentence')}: {printable(title)}"
        yield from (paragraph("    ", sentence) for sentence in sentences)
        yield ""


def rows_wanted(args: argparse.Namespace, count: int) -> list[int]:
    """Returns the indices of the rows that a command line asks for, of `count` rows. UserError: no such rows."""
    if args.n < 1:
        raise UserError(f"-n is {args.n}; give the number of rows to show, 1 or more")
    if args.row is not None and not 0 <= args.row < count:
        raise UserError(f"--row is {args.row}; {args.directory} has rows 0 to {count - 1}")
    if args.row is not None:
        return list(range(args.row, min(count, args.row + args.n)))
    wanted = min(count, args.n)
    return [count * i // wanted for i in range(wanted)]


def describe_row(index: int, row: shards.ShardRows, max_seq_length: int, vocabulary: Vocabulary) -> Iterator[str]:
    """Yields the lines that show one row."""
    used = int(row.parts.positions().sum())
    count = len(row.documents)
    yield f"row {index}: {count} pair{'s' * (count != 1)}, {used} of {max_seq_length} positions"
    start = 0
    for pair, (*lengths, document) in enumerate(zip(*row.parts, row.documents)):
        lead, a, b, trail = lengths
        partner = f"B {b + trail} tokens" if b else "no B"
        yield f"  pair {pair}, document {document}: A {lead + a} tokens, {partner}"
        for name, length in zip(("lead", "A", "B", "trail"), lengths):
            ids = row.tokens[start : start + length].tolist()
            start += length
            if ids:
                yield paragraph(f"    {name:<5} ", vocabulary.decode(ids))
                yield paragraph("          ", " ".join(vocabulary.pieces[i] for i in ids))
    yield ""


def paragraph(head: str, text: str) -> str:
    """Wraps `text`, made printable, with `head` before the first line and equal indentation before the others."""
    text, rest = printable(text), " " * len(head)
    return textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=rest, break_on_hyphens=False)
