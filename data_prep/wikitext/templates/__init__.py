"""What {{templates}} become: one module for each family, with its `RENDERERS` (template name -> function).

registry   finds the renderer of a template
arguments  the arguments of a template
inline     words and signs: formatting, quotations, links, names
signs      templates that show one sign or a blank
convert    {{convert}}: quantities with a unit of measurement
units      names and symbols of units of measurement
measures   fractions, values, coordinates, money
numbers    numbers as a sentence shows them
dates      dates and times
ages       ages, eras, and dates relative to the page's own
languages  foreign words and pronunciations
ships      names of ships
codes      codes of stocks, airports, roads
local      templates in languages other than English
dropped    templates that are not part of a sentence
"""
