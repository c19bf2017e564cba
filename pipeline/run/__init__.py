"""The life of a run: what surrounds the training loop.

facts   what must be the same on all hosts
launch  runs one command on all ranks: rendezvous, validate, monitor, exit
start   checks, opens, trains and exports the runs of a command
"""
