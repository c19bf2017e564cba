"""What all packages share. It imports no other package of the project.

errors         `UserError`, which is shown to the user as one line
command_line   command lines whose mistakes raise `UserError`
environment    numbers that launchers set; what the system says of its GPUs, without torch; Ctrl-C
progress_bar   a progress bar on a terminal, plain lines elsewhere
text           counts, durations, Markdown tables, and text of others that is printed
intervals      95 % intervals of proportions and other metrics
rng            random numbers that depend on their key only
files/         reads, writes, checks and replaces files safely
"""

__version__ = "0.9.0"

PREFIX = __name__.removesuffix("common")
"""What stands before the names of the project's packages: nothing in a checkout, `albert_pretraining.` in a wheel."""
