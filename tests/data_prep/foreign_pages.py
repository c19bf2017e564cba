"""Small wikis in four languages, as MediaWiki exports them. The pages were written for these tests."""

import html
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wiki:
    """One wiki. namespaces: (media, special, user, file, template, category); page: wikitext of an article."""

    language: str
    namespaces: tuple[str, str, str, str, str, str]
    page: str
    redirect: str
    meanings: str
    sentences: tuple[str, ...]


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["wikis"]
WIKIS = [Wiki(**wiki | {name: tuple(wiki[name]) for name in ("namespaces", "sentences")}) for wiki in _TABLE]


def export(wiki: Wiki, pages: Sequence[str] = ()) -> str:
    """Returns an export as MediaWiki writes it: articles, the wiki's own if none is given, a redirect, and a list."""
    keys = (-2, -1, 2, 6, 10, 14)
    listed = "".join(
        f'      <namespace key="{key}" case="first-letter">{name}</namespace>\n'
        for key, name in zip(keys, wiki.namespaces)
    )
    header = (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" '
        f'xml:lang="{wiki.language}">\n  <siteinfo>\n    <sitename>Wiki</sitename>\n'
        f"    <dbname>{wiki.language}wiki</dbname>\n    <generator>MediaWiki 1.44.0</generator>\n    <namespaces>\n"
        f'{listed}      <namespace key="0" case="first-letter" />\n    </namespaces>\n  </siteinfo>\n'
    )
    texts = [*(pages or [wiki.page]), wiki.redirect, wiki.meanings]
    written = "".join(
        f"  <page><title>Page {number}</title><ns>0</ns><id>{number}</id><revision><id>{number}</id>"
        f"<model>wikitext</model><text>{html.escape(text, quote=False)}</text></revision></page>\n"
        for number, text in enumerate(texts)
    )
    return f"{header}{written}</mediawiki>\n"
