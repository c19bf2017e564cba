"""What the extraction of an article may have lost: gaps in sentences, and parts of an independent rendering."""

import re
from collections.abc import Iterator

import mwparserfromhell
from mwparserfromhell import nodes

from data_prep.text.sentences import split_sentences

GAPS = re.compile(
    r"\(\s*\)|\(\s*[,;:]|[,;]\s*\)|,\s*,|;\s*;| [.,](?= |$)|\b(?:at|of the|an|than)(?: [,.;)]|,)", re.MULTILINE
)
"""Traces of dropped words, such as "( )", ", ," or "at ."."""
_MIN_WORDS = 5  # of a stretch
_CUT = "\ue000"
_REFERENCE = re.compile(r"<ref\b[^<>]*/>|<ref\b[^<>]*>.*?</ref\s*>", re.IGNORECASE | re.DOTALL)
_CUT_TAGS = frozenset(("gallery", "table", "timeline", "imagemap", "math", "score", "li", "dt", "dd"))
_LISTING = re.compile(
    r"(?:see also|references?|notes?|footnotes|external links|further reading|bibliography|citations|sources"
    r"|works cited|gallery)\b.*|.*\b(?:references|bibliography|sources|links)",
    re.IGNORECASE,
)


def letters(text: str) -> str:
    """Letters and digits only: on these two renderings of one text agree."""
    return re.sub(r"[\W_]+", "", text).lower()


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
