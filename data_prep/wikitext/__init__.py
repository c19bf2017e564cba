"""MediaWiki markup -> prose: whole sentences, and nothing else.

Other packages use `to_prose` and the `Site` that it needs. Its stages, in order:

    tags        comments and extension tags: <ref>, <math>, <nowiki>, ...
    latex       formulas -> text, for `tags`
    prose       `to_prose` itself; sections and flat markup
    markup      nested markup: templates, links, tables
    templates/  what each template becomes, for `markup`
    scripts     superscripts and subscripts
    paragraphs  which lines form paragraphs, and which paragraphs are prose
    repair      punctuation around removed things, for `paragraphs`
    variants    words that a wiki shows in several variants of a language
    site        what one wiki calls things: namespaces, headings, numbers
    markers     characters that the stages use as markers and escapes

Words that these modules use:

    marker      a private-use character that one stage puts into the text for a later one
    removed     `REMOVED`, the marker in the place of something without words, such as a footnote
    escaped     a character of markup that stands for itself, as inside <nowiki>
    renderer    a function from the arguments of a template to the text that a reader sees
"""

from data_prep.wikitext.prose import to_prose
from data_prep.wikitext.site import ENGLISH_SITE, Site

__all__ = ["ENGLISH_SITE", "Site", "to_prose"]
