"""Computes what a run will need, before it starts: memory, time and cost.

request   command line of `python -m pipeline.plan`, checked and made into one object
plan      the plan of a run, the fastest alternative that fits, and both as text
memory    bytes on a GPU, by kind
time      seconds of a step: computation and collectives
failures  what lost nodes cost, and how often to save because of them
"""
