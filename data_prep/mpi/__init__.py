"""Runs the work units of a job on MPI ranks, and remembers which are finished.

executor   runs a job once, distributes its work units over the ranks, and ends it on all of them
ledger     records of finished work units, so that an interrupted job can continue
"""
