"""Compares runs, scores minimal pairs, and reproduces the tables of the paper.

comparison        finds fine-tuning runs, and compares them with the majority class and with random weights
summary           the table of one run
minimal_pairs     how many minimal pairs, such as BLiMP's, a pre-trained model gets right
paper_tables      the paper's tables (paper.toml): their rows, and the measured values beside the printed ones
"""
