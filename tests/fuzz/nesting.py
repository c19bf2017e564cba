"""Finds markup whose time grows faster than its size: brackets of all kinds, nested or in rows, with pieces between.

    python -m tests.fuzz.nesting [--size 10000] [--only TEXT]

Each page is rendered at --size characters and at four times as many. Linear work takes four times as long. A page is
named if it takes more than ten times as long, or more than the limit. Times are processor time.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from xml.etree import ElementTree

from data_prep.sources.wikipedia import article
from data_prep.wikitext.site import site_of

BRACKETS = (
    *(("(", ")"), ("[", "]"), ("[[", "]]"), ("[[a|", "]]"), ("[[File:a|", "]]"), ("{{", "}}"), ("{{a|", "}}")),
    *(("{{#if:a|", "}}"), ("{{lc:", "}}"), ("{{nowrap|", "}}"), ("{{{a|", "}}}"), ("{", "}"), ("\n{|\n|", "\n|}\n")),
    *(("\n{|\n|", "\n{{end}}\n"), ("<table>", "</table>"), ("<b>", "</b>"), ("<ref>", "</ref>"), ("<math>", "</math>")),
    *(("<sup>", "</sup>"), ("<nowiki>", "</nowiki>"), ("<pre>", "</pre>"), ("<!--", "-->"), ("-{", "}-"), ("''", "''")),
    *(("'''", "'''"), ("'", "'"), ('"', '"'), ("“", "”"), ("«", "»"), ("（", "）"), ("[http://a ", "]"), ("\n:", "")),
    *(("\n*", ""), ("\n==", "==\n"), ("<", ">"), ("&", ";"), ("{{IPA|", "}}"), ("<gallery>", "</gallery>")),
    *(("\n==a==\n{|\n", ""), ("[//", "]"), ("{{cn}}(", ")"), ("<small ", ">"), ("<source inline>", "</source>")),
)
PIECES = (
    *("", " ", "a", "a. ", "A b c. ", "|", "=", "{{cn}}", "{{IPA|a}}", "{{pop density|1|2}}", ",", ", ", ":", "or:"),
    *("or ", ".", " .", ". . ", "\n", "\n\n", "\n==a==\n", "'", "<br>", "&amp;", "-", "1", "ISBN ", "A, ", "http://"),
    *("{{end}}", "zh:a;", "zh=>", "~", "\\frac", "^", "\u200d", "\u00a0", "a ", "pp. ", "u.s.", "pron."),
)
Form = Callable[[str, str, str, int], str]
FORMS: dict[str, Form] = {
    "open*n inner close*n": lambda a, z, piece, n: a * n + piece + z * n,
    "open*n": lambda a, z, piece, n: a * n,
    "(open inner)*n": lambda a, z, piece, n: (a + piece) * n,
    "(open inner)*n close*n": lambda a, z, piece, n: (a + piece) * n + z * n,
    "open*n (inner close)*n": lambda a, z, piece, n: a * n + (piece + z) * n,
    "(open inner close)*n": lambda a, z, piece, n: (a + piece + z) * n,
    "(inner close)*n": lambda a, z, piece, n: (piece + z) * n,
    "open inner*n close": lambda a, z, piece, n: a + piece * n + z,
    "open {{cn}} inner*n x": lambda a, z, piece, n: a + "{{cn}}" + piece * n + "x" + z,
}
LIMIT = 10.0
"""Seconds of processor time of one page."""
QUICK = 0.1
"""Seconds below which times are too short to be compared."""


def seconds(text: str, language: str) -> float:
    """Returns the processor time that a page of this text takes."""
    page = ElementTree.Element("page")
    ElementTree.SubElement(ElementTree.SubElement(page, "revision"), "text").text = text
    begin = time.process_time()
    list(article(page, site_of(language)))
    return time.process_time() - begin


def main() -> int:
    """Renders all pages, and returns 1 if one of them is slow."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.nesting", description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=10_000, metavar="N", help="characters of the smaller page (10000)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains this")
    args = parser.parse_args()
    seen: set[tuple[str, str]] = set()
    faults = 0
    for form, (a, z), piece, language in itertools.product(FORMS, BRACKETS, PIECES, ("en", "zh")):
        name = f"{form}: {a!r} {piece!r} {z!r} {language}"
        unit = max(1, len(FORMS[form](a, z, piece, 100)) // 100)
        small, large = (
            f"It is a. {FORMS[form](a, z, piece, size // unit)} It is b." for size in (args.size, 4 * args.size)
        )
        if args.only not in name or (large, language) in seen:
            continue
        seen.add((large, language))
        first = seconds(small, language)
        last = seconds(large, language) if first < LIMIT else first
        if last > LIMIT or (last > QUICK and last > 10 * first):
            faults += 1
            print(f"SLOW {name}: {first:.2f} s, then {last:.2f} s", flush=True)
    print(f"{len(seen):,} pages, {faults} slow")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
