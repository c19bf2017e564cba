"""The life of a run: what surrounds the training loop.

launch      runs one command on all ranks: rendezvous, validate, monitor, exit
lifecycle   the life of a run: check, open, print the header, train, finish
"""
