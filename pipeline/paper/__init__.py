"""Reproduces the tables of the ALBERT paper, and tests their claims in small: the runs needed, and what was measured.

printed_tables   the paper's tables, row by row, from paper.toml
experiments      from a table to the commands that make it
runner           runs these commands
tables           the tables with measured values beside the printed ones, and the curves of Figure 2
claims           the claims in small: sides that are compared with the same compute, and their commands
claims_page      their page
"""
