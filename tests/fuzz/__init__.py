"""Damaged and foreign files for every command that reads files.

    python -m tests.fuzz --cases 10000 [--seed 0] [--command export] [--change fifo]

inputs         one small valid set of all inputs: documents, vocabulary, shards, runs, exports, unfinished jobs
commands       the commands of `commands.toml`, and which of these files each of them reads
changes        what is done to a file, or around a command
runner         runs a command in a child process and judges what happened
"""
