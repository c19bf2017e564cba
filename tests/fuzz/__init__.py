"""A tool outside of the tests: `python -m tests.fuzz` damages the files that commands read, and judges their ends."""
