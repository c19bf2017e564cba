"""The life of a run: what surrounds the training loop.

launch  runs one command on all ranks: rendezvous, validate, monitor, exit
start   checks, opens, trains and exports the runs of a command
"""
