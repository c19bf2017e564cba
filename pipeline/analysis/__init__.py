"""Compares and combines runs.

finished_runs     finds fine-tuning runs that have ended, reads them, and traces them back to their pre-training
comparison        compares runs with the majority class and with random weights
ensemble          averages the predictions of several runs
summary           the table of one pre-training run
"""
