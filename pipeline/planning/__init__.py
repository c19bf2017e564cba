"""Computes what a run will need, before it starts: memory, time and cost (`python -m pipeline.plan`).

plan      the plan of a run, the fastest alternative that fits, and both as text
memory    bytes on a GPU, by kind
time      seconds of a step: computation and collectives
"""
