"""What {{templates}} become. A function renders a family of templates, which `shows` names.

registry     finds the function of a template
arguments    the arguments of a template, and `shows`
words        words and signs: formatting, quotations, links, names
quantities   {{convert}}, fractions, values, coordinates, money
numbers      numbers and units as a sentence shows them
dates        dates, times, ages, eras
identifiers  ships, stocks, airports, roads
languages    foreign words and pronunciations; pages in other languages
"""
