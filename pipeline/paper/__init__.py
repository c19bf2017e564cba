"""Reproduces the tables of the ALBERT paper: the runs that they need, and what was measured.

printed_tables   the paper's tables, row by row, from paper.toml
experiments      from a table to the commands that make it
tables           the tables with measured values beside the printed ones, and the curves of Figure 2
"""
