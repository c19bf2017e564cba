"""MediaWiki markup -> prose: whole sentences, and nothing else.

`to_prose` of this module runs all stages in order, and renders sections and flat markup itself:

    tags        comments, extension tags (<ref>, <math>, <nowiki>), formulas, superscripts, variants of a language
    nested      templates, links, tables
    templates/  what each template becomes, for `nested`
    paragraphs  which lines form paragraphs, which of them are prose, and the punctuation around removed things
    site        what one wiki calls things: namespaces, headings, numbers
    markers     characters that the stages use as markers and escapes

`templates.toml` says what templates show, `formulas.toml` what commands of LaTeX show, and `languages.toml` what the
wikis of each language call things. Words that these modules use:

    marker      a private-use character that one stage puts into the text for a later one
    removed     `REMOVED`, the marker in the place of something without words, such as a footnote
    escaped     a character of markup that stands for itself, as inside <nowiki>
    pattern     what a template shows, with fields for its arguments
"""

import html
import re

from data_prep.wikitext.markers import HEADING, REMOVED, strip_markers
from data_prep.wikitext.nested import flatten
from data_prep.wikitext.paragraphs import prose_paragraphs
from data_prep.wikitext.site import ENGLISH_SITE, Site, heading
from data_prep.wikitext.tags import choose_variants, render_scripts, render_tags
from data_prep.wikitext.templates.arguments import names

_HEADING = re.compile(r"^(={1,6})(.+?)\1[ \t]*$", re.MULTILINE)
_LINK = re.compile(
    r"\[(?:(?:https?|ftp|ftps|irc|news|gopher|sftp):(?://)?|//|mailto:)[^\s\[\]]*[ \t]*([^\[\]\n]*)\]", re.I
)
# A line in bold type that is no sentence: it stands in the place of a heading.
_BOLD_HEADING = re.compile(r"^[ \t]*'''(?!')[^'\n]*[^'\n.!?…](?<!')'''[ \t]*:?[ \t]*$", re.MULTILINE)
_QUOTES = re.compile(r"('{2,})")
# ''Eagle'''s: of two in a line, MediaWiki would drop the apostrophes.
_ITALIC_POSSESSIVE = re.compile(r"(?<!')''(?!')([^'\n]+?\w)'''(?=s\b)")
# The text after a tag's name must look like attributes: "x<small y and z>2" contains no tag.
_TAG = re.compile(
    r"</?(abbr|b|bdi|bdo|big|blockquote|br|center|cite|code|data|dd|del|dfn|div|dl|dt|em|font|h[1-6]|hr|i|includeonly|ins"
    r"|kbd|li|mark|noinclude|nobr|nowiki|ol|onlyinclude|p|poem|pre|q|ref|references|rb|rp|rt|rtc|ruby|s|samp|section|small"
    r"|source|span|strike|strong|sub|sup|table|tbody|td|templatestyles|th|tr|time|tt|u|ul|var|wbr)"
    r"(?:\s*/?\s*|\s+(?:nowrap\s+)?[a-z-]+\s*=[^<>]*|\s+(?:clear|nowrap|compact|reversed|hidden)\s*/?\s*|(?<=<br)[^<>\w]{0,5})>",
    re.IGNORECASE,
)
_BREAKING_TAGS = frozenset(names("blockquote|dd|div|dl|dt|h1|h2|h3|h4|h5|h6|hr|li|ol|p|poem|pre|td|th|tr|ul"))
_SWITCH = re.compile(r"__[A-Z]{3,}__")
_BLANK = re.compile(r"[\t\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_BLANKS = re.compile("  +")
_MEANINGLESS = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060\ufeff\u00ad]")
# Joiners (200c, 200d) decide how words of Arabic, Indian and some other scripts are written, and join emoji to one.
_JOINED_SCRIPTS = (
    "\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u18af\u1b00-\u1b7f\ua840-\uabff\ufb50-\ufdff\ufe70-\ufefc"
)
_EMOJI = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
_JOINERS = re.compile(
    rf"(?<=[{_JOINED_SCRIPTS}])([\u200c\u200d]++)(?=[{_JOINED_SCRIPTS}])"
    rf"|(?<=[{_EMOJI}\ufe0f])(\u200d)(?=[{_EMOJI}])|[\u200c\u200d]"
)


def to_prose(wikitext: str, site: Site = ENGLISH_SITE, losses: list[str] | None = None) -> str:
    """Returns the running text of a page: paragraphs separated by one "\n"; "" if there is none.

    Tables, boxes, files, references, headings and the sections after the text are left out. So are list items that are
    not sentences. BERT uses the same rule for Wikipedia (section 3.1 of its paper): text passages, no lists, tables or
    headers. Reasons why text was lost are appended to `losses`.
    """
    text = render_tags(strip_markers(wikitext))
    if site.variants:
        text = choose_variants(text, site.variants)
    text = flatten(drop_sections(text, site), site, [] if losses is None else losses)
    text = _LINK.sub(lambda match: match[1] or REMOVED, text)
    if "''" in text:
        text = _BOLD_HEADING.sub("\n", text)
        if "'''s" in text:
            text = _ITALIC_POSSESSIVE.sub(r"\1'", text)
        text = "\n".join(drop_quotes(line) if "''" in line else line for line in text.split("\n"))
    text = _TAG.sub(_replace_tag, render_scripts(text))
    if "&" in text:
        text = html.unescape(text)
    text = _MEANINGLESS.sub("", _BLANKS.sub(" ", _BLANK.sub(" ", _SWITCH.sub("", text))))
    if "\u200c" in text or "\u200d" in text:
        text = _JOINERS.sub(lambda match: match[1] or match[2] or "", text)
    return "\n".join(prose_paragraphs(text, site.language))


def _replace_tag(match: re.Match[str]) -> str:
    name = match[1].lower()
    return "\n\n" if name in _BREAKING_TAGS else " " if name == "br" else ""


def drop_quotes(line: str) -> str:
    """Removes the marks of italic (2 apostrophes), bold (3) and both (5) from a line; other apostrophes are text.

    The rule is that of MediaWiki (`Parser::doQuotes`). Of 4, the first is text; of more than 5, all but the last 5. If
    the line has an odd number of both kinds, one bold mark is an apostrophe before an italic mark: the first after a
    word of one letter, else the first after another word, else the first after a blank.
    """
    parts = _QUOTES.split(line)  # text, mark, text, mark, ..., text
    sizes = []
    for at in range(1, len(parts), 2):
        count = len(parts[at])
        sizes.append(3 if count == 4 else min(count, 5))
        parts[at - 1] += "'" * (count - sizes[-1])
    bold = [index for index, size in enumerate(sizes) if size == 3]
    both = sizes.count(5)
    if bold and (len(bold) + both) % 2 and (sizes.count(2) + both) % 2:
        parts[2 * min(bold, key=lambda index: _rank_of_apostrophe(parts[2 * index]))] += "'"
    return "".join(parts[::2])


def _rank_of_apostrophe(before: str) -> int:
    """Returns how late the mark after `before` is taken for an apostrophe; é counts as two letters, as in MediaWiki."""
    if before.endswith(" "):
        return 2
    return 0 if before[-2:-1] == " " and before[-1].isascii() else 1


def drop_sections(text: str, site: Site = ENGLISH_SITE) -> str:
    """Replaces headings by HEADING, and removes sections of references, links and notes with their subsections."""
    kept, position, dropping = [], 0, 0  # dropping: level of the section being dropped, 0 when none is
    for match in _HEADING.finditer(text):
        level = len(match[1])
        if not dropping:
            kept.append(text[position : match.start()])
        position = match.end()
        if not dropping or level <= dropping:
            title = re.sub(r"['\[\]:]|\{\{[^{}]*\}\}|<[^<>]*>", "", match[2])
            dropping = level if heading(title) in site.sections else 0
    if not dropping:
        kept.append(text[position:])
    return f"\n\n{HEADING}\n\n".join(kept)
