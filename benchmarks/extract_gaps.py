"""Measures what `extract --source wikipedia` loses: gaps in sentences, lost sentences, templates without words.

    python -m benchmarks.extract_gaps [--export FILE] [--show 5]

Reads the articles of one export (default: the sample corpus, downloaded into .cache on first use) and prints:

1.  Gaps: places where words are missing, found by a simple regular expression, such as "( )", ", ," or "at .".
2.  Lost stretches. Every page is also rendered with mwparserfromhell, independently of data_prep. Its sentences are cut
    where a template or a formula was. A stretch between cuts is lost if the article's prose does not contain it.
3.  Templates in the text that is kept: their names, how often they occur, and whether they became words.
"""

import argparse
import collections
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import mwparserfromhell
from mwparserfromhell import nodes

from common.command_line import Parser, entry_point
from data_prep.__main__ import main as data_prep
from data_prep.corpus.documents import Document
from data_prep.sources import wikipedia
from data_prep.text.sentences import split_sentences
from data_prep.wikitext import markup
from data_prep.wikitext.markers import REMOVED

# Traces of dropped words.
GAPS = re.compile(
    r"\(\s*\)|\(\s*[,;:]|[,;]\s*\)|,\s*,|;\s*;| [.,](?= |$)|\b(?:at|of the|an|than)(?: [,.;)]|,)", re.MULTILINE
)
_SAMPLE = Path(".cache/sample")
_MIN_WORDS = 5  # of a stretch
_CUT = "\ue000"
_REFERENCE = re.compile(r"<ref\b[^<>]*/>|<ref\b[^<>]*>.*?</ref\s*>", re.IGNORECASE | re.DOTALL)
_CUT_TAGS = frozenset(("gallery", "table", "timeline", "imagemap", "math", "score", "li", "dt", "dd"))
_LISTING = re.compile(
    r"(?:see also|references?|notes?|footnotes|external links|further reading|bibliography|citations|sources"
    r"|works cited|gallery)\b.*|.*\b(?:references|bibliography|sources|links)",
    re.IGNORECASE,
)


@dataclass
class Report:
    """What was found in one export.

    Attributes:
        gaps, lost: (title of the article, text).
        stretches: how many were searched for.
        templates: (name, has words) -> count.
        seconds: of processor time, for the extraction.
        skipped: how many damaged blocks and broken pages the export has. A damaged block breaks the page that it cuts.
    """

    gaps: list[tuple[str, str]] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)
    stretches: int = 0
    templates: collections.Counter[tuple[str, bool]] = field(default_factory=collections.Counter)
    articles: int = 0
    raw_bytes: int = 0
    seconds: float = 0.0
    skipped: int = 0


def measure(export: Path) -> Report:
    """Extracts every article of one export and compares it with an independent rendering."""
    report = Report()
    source = wikipedia.Wikipedia([export], 16 << 20)
    for unit in source.units:
        for raw in wikipedia.raw_pages(unit):
            if isinstance(raw, wikipedia.DamagedBlock):
                report.skipped += 1
                continue
            began = time.process_time()
            try:
                page = wikipedia.parse_page(raw)
            except expat.ExpatError:
                report.skipped += 1
                continue
            item = wikipedia.article(page)
            report.seconds += time.process_time() - began
            report.raw_bytes += len(raw)
            if not isinstance(item, Document):
                continue
            report.articles += 1
            report.gaps += [
                (page.title, item.text[max(0, match.start() - 60) : match.end() + 30])
                for match in GAPS.finditer(item.text)
            ]
            kept = letters(item.text)
            for stretch in stretches(page.text):
                report.stretches += 1
                if letters(stretch) not in kept:
                    report.lost.append((page.title, stretch))
            report.templates += count_templates(page.text)
    return report


def stretches(wikitext: str) -> Iterator[str]:
    """Parts of a page's sentences, of several words and without templates or formulas, rendered by mwparserfromhell."""
    page = mwparserfromhell.parse(_REFERENCE.sub("", wikitext))
    for kind in (nodes.Comment, nodes.Wikilink, nodes.Tag, nodes.Template):
        for node in page.filter(recursive=page.RECURSE_OTHERS, forcetype=kind):
            if (instead := _instead_of(node)) is not None:
                page.replace(node, instead)
    for section in page.get_sections(flat=True, include_lead=True):
        headings = section.filter_headings()
        if headings and _LISTING.fullmatch(headings[0].title.strip_code().strip()):
            continue
        for heading in headings:
            section.replace(heading, "\n\n")
        for line in section.strip_code(normalize=True, collapse=True).split("\n"):
            for sentence in split_sentences(line):
                if re.search(r"[.!?][\"”')]*$", sentence):
                    yield from (part for part in sentence.split(_CUT) if len(part.split()) >= _MIN_WORDS)


def _instead_of(node: nodes.Node) -> str | None:
    """The replacement of a node that has no words, or words that both renderings write differently; None to keep it.

    Comments and references leave no cut: the sentence around them must be whole.
    """
    if isinstance(node, nodes.Wikilink):
        return "" if re.match(r"\s*(?:file|image|category)\s*:", str(node.title), re.IGNORECASE) else None
    if isinstance(node, nodes.Tag):
        return _CUT if str(node.tag).lower() in _CUT_TAGS else None
    return _CUT if isinstance(node, nodes.Template) else ""


def letters(text: str) -> str:
    """Letters and digits only: on these two renderings of one text agree."""
    return re.sub(r"[\W_]+", "", text).lower()


def count_templates(wikitext: str) -> collections.Counter[tuple[str, bool]]:
    """Counts templates in the sections that are kept: (name, has words) -> count."""
    found: collections.Counter[tuple[str, bool]] = collections.Counter()
    render = markup.render_template

    def count(content: str, before: str, written: object = None, site: object = None) -> str:
        shown = render(content, before, None)
        name = " ".join(content.partition("|")[0].partition(":")[0].replace("_", " ").lower().split())
        found[name, shown.strip(REMOVED + " \n") != ""] += 1
        return shown

    markup.render_template = count
    try:
        wikipedia.to_prose(wikitext)
    finally:
        markup.render_template = render
    return found


@entry_point
def main(argv: Sequence[str]) -> int:
    """Prints the report and returns the exit status: 1 if there are ten gaps or more."""
    parser = Parser(
        prog="python -m benchmarks.extract_gaps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--export", type=Path, help="MediaWiki export (default: the sample corpus)")
    parser.add_argument("--show", type=int, default=5, help="examples to print of each kind (default %(default)s)")
    arguments = parser.parse_all(argv)
    if arguments.export is None:
        data_prep(["sample", "--out", str(_SAMPLE)])
        arguments.export = next((_SAMPLE / "wikipedia").iterdir())
    report = measure(arguments.export)
    print(
        f"{report.articles} articles, {report.raw_bytes / 1e6:.1f} MB of XML, "
        f"{report.raw_bytes / 1e6 / report.seconds:.1f} MB/s on a core"
    )
    if report.skipped:
        print(f"{report.skipped} damaged blocks and broken pages were skipped")
    for name, found in (("gaps", report.gaps), (f"of {report.stretches:,} stretches lost", report.lost)):
        print(f"{len(found)} {name}")
        for title, text in found[: arguments.show]:
            print(f"    {title}: {text!r}")
    for has_words in (True, False):
        listed = [(name, count) for (name, words), count in report.templates.most_common() if words == has_words]
        print(f"templates {'with' if has_words else 'without'} words: {', '.join(f'{n} {c}' for n, c in listed)}")
    return int(len(report.gaps) >= 10)


if __name__ == "__main__":
    sys.exit(main())
