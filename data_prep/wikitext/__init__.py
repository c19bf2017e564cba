"""MediaWiki markup -> prose: whole sentences, and nothing that is not one.

`to_prose` is the only name for others. Its stages, in order: extension tags (tags.py, latex.py), sections, nested
markup
(markup.py, templates.py, measures.py), flat markup, paragraphs, and the repair of what dropped things leave behind
(repair.py).
"""

from data_prep.wikitext.prose import to_prose

__all__ = ["to_prose"]
