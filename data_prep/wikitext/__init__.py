"""MediaWiki markup -> prose: whole sentences, and nothing that is not one.

`to_prose` (prose.py) is the only name for others. Its stages, in order: extension tags (tags.py, latex.py); sections;
nested markup (markup.py), in which templates.py finds the renderer of each template (inline.py, signs.py, convert.py,
measures.py, dates.py, ages.py, languages.py, ships.py, codes.py); flat markup (scripts.py); paragraphs (paragraphs.py),
and in each the repair of what dropped things leave behind (repair.py).
"""

from data_prep.wikitext.prose import to_prose

__all__ = ["to_prose"]
