"""Compares runs, and scores minimal pairs.

comparison        finds fine-tuning runs, and compares them with the majority class and with random weights
summary           the table of one run
minimal_pairs     how many minimal pairs, such as BLiMP's, a pre-trained model gets right
"""
