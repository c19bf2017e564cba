"""Compares and combines runs, and reproduces the tables of the paper.

finished_runs     finds fine-tuning runs that have ended, reads them, and traces them back to their pre-training
comparison        compares runs with the majority class and with random weights
ensemble          averages the predictions of several runs
summary           the table of one pre-training run
experiments       a table of the paper -> the commands that make it
printed_tables    what the paper printed (paper.toml)
paper_tables      the tables with measured values beside the printed ones
"""
