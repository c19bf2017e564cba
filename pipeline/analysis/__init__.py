"""Compares and combines runs, and reproduces the tables of the paper.

finished_runs     finds fine-tuning runs that have ended, and reads their predictions
comparison        compares runs with the majority class and with random weights
ensemble          averages the predictions of several runs
summary           the table of one pre-training run
curves            one picture of a pre-training run
paper_tables      the paper's tables (paper.toml): their rows, and the measured values beside the printed ones
"""
