"""Scores sentence splitters on boundaries that were decided by reading.

    python -m benchmarks.sentences GOLD [--out benchmarks/results/sentences]

GOLD is a directory with one file for each language, such as de.txt. A line is a paragraph. "¦" stands where a sentence
ends and another one begins, and "¤" where either is right. Beside this project it scores those of sentencex, pysbd,
syntok and PyICU that are installed. A boundary stands before the next character that is no blank and no closing mark.
The table gives precision and recall.
"""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import sentencex

from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from common.text import markdown_table
from data_prep.text.sentences import split_sentences

OURS = "this project"
_MARKS = re.compile("[¦¤]")
_CLOSING = re.compile(r"[”’»」』）)\]\s]*")


def positions(text: str, sentences: Iterable[str]) -> set[int]:
    """Where sentences but the first begin in `text`. ValueError: they are not the text."""
    found, end = set(), 0
    for sentence in filter(None, (getattr(part, "sent", part).strip() for part in sentences)):
        end = text.index(sentence, end) + len(sentence)
        found.add(_CLOSING.match(text, end).end())  # type: ignore[union-attr]
    return {position for position in found if text[position:].strip("\"'“ ")}


def count(path: Path, split: Callable[[str], Iterable[str]]) -> tuple[int, int, int]:
    """Returns the boundaries of a gold file that are found, missed, and made where none is."""
    found = missed = wrong = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        text = _MARKS.sub("", line)
        decided = positions(text, line.replace("¤", "").split("¦"))
        free = positions(text, line.replace("¦", "").split("¤"))
        made = positions(text, split(text)) - (free - decided)
        found, missed, wrong = found + len(made & decided), missed + len(decided - made), wrong + len(made - decided)
    return found, missed, wrong


def splitters(language: str) -> dict[str, Callable[[str], Iterable[str]]]:
    """The splitters that are installed and know the language, by name."""
    known: dict[str, Callable[[str], Iterable[str]]] = {OURS: lambda text: split_sentences(text, language)}
    known["sentencex"] = lambda text: sentencex.segment(language, text)
    if importlib.util.find_spec("pysbd") and language in importlib.import_module("pysbd.languages").LANGUAGE_CODES:
        known["pysbd"] = importlib.import_module("pysbd").Segmenter(language, clean=False, char_span=True).segment
    if language in ("de", "en", "es") and importlib.util.find_spec("syntok"):
        syntok = importlib.import_module("syntok.segmenter")
        known["syntok"] = lambda text: (
            text[words[0].offset : words[-1].offset + len(words[-1].value)]
            for paragraph in syntok.process(text)
            for words in paragraph
        )
    if importlib.util.find_spec("icu"):
        known["ICU"] = lambda text: _by_icu(text, language)
    return known


def _by_icu(text: str, language: str) -> Iterable[str]:
    icu = importlib.import_module("icu")
    breaks = icu.BreakIterator.createSentenceInstance(icu.Locale(f"{language}@ss=standard"))
    units = icu.UnicodeString(text)
    breaks.setText(units)
    start = 0
    for end in breaks:
        yield str(units[start:end])
        start = end


def markdown(results: dict[str, dict[str, tuple[int, int, int]]]) -> str:
    """The table: precision and recall of each splitter in percent."""
    names = list(dict.fromkeys(name for rows in results.values() for name in rows))
    rows = [
        [language, sum(counts[OURS][:2]), *(_cell(*counts[name]) if name in counts else "" for name in names)]
        for language, counts in results.items()
    ]
    return markdown_table(("language", "boundaries", *names), rows, "lr" + "r" * len(names))


def _cell(found: int, missed: int, wrong: int) -> str:
    return f"{100 * found / max(1, found + wrong):.1f}, {100 * found / max(1, found + missed):.1f}"


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    parser = Parser(prog="python -m benchmarks.sentences", description="Precision and recall of sentence boundaries.")
    parser.add_argument("gold", type=Path, metavar="GOLD", help="directory with LANGUAGE.txt")
    parser.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    args = parser.parse_all(argv)
    files = sorted(args.gold.glob("*.txt"))
    if not files:
        raise UserError(f"{args.gold} has no file such as de.txt")
    results = {path.stem: {name: count(path, split) for name, split in splitters(path.stem).items()} for path in files}
    report.publish(args.out, {"found, missed, wrong": results}, markdown(results), "Boundaries of sentences")


if __name__ == "__main__":
    sys.exit(main())
