"""Runs the work units of a job on MPI ranks, and remembers which are finished.

executor   distributes work units over the ranks, and ends a job on all of them
exclusive  does a job alone on its output, or not at all where its result is complete
ledger     records of finished work units, so that an interrupted job can continue
"""
