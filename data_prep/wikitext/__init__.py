"""MediaWiki markup -> prose: whole sentences, and nothing else.

Other packages use `to_prose` and the `Site` that it needs. Its stages, in order:

    tags        comments, extension tags (<ref>, <math>, <nowiki>), formulas, superscripts, variants of a language
    markup      `to_prose` itself; sections, flat markup
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

from data_prep.wikitext.markup import to_prose
from data_prep.wikitext.site import ENGLISH_SITE, Site, read_site

__all__ = ["ENGLISH_SITE", "Site", "read_site", "to_prose"]
