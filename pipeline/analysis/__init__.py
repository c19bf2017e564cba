"""Compares runs, scores minimal pairs, and reproduces the tables of the paper.

finished_runs     finds fine-tuning runs that have ended, and reads their predictions
comparison        compares runs with the majority class and with random weights
summary           the table of one run, and a picture of its curves
minimal_pairs     how many minimal pairs, such as BLiMP's, a pre-trained model gets right
sentence_scores   pseudo-log-likelihoods of sentences
paper_tables      the paper's tables (paper.toml): their rows, and the measured values beside the printed ones
"""
