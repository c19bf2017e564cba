"""Damaged and foreign files for every command that reads files.

    python -m tests.fuzz --cases 10000 [--seed 0] [--command export]

inputs      one small valid set of all inputs: documents, vocabulary, shards, runs, exports, configurations
commands    the commands, and which of these files each of them reads
mutations   what is done to a file
oracle      runs a command in this process and judges what happened
"""
