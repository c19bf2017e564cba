"""Compares and combines runs.

finished_runs     finds fine-tuning runs that have ended, reads them, and traces them back to their pre-training
comparison        compares runs with the majority class and with random weights
ensemble          averages the predictions of several runs
compared_runs     reads runs of both kinds, finished or not
html_report       a page that compares runs, with curves as SVG by matplotlib
"""
