"""What all packages share. It imports no other package of the project.

errors        `UserError`, which is shown to the user as one line
command_line  command lines whose mistakes raise `UserError`
environment   numbers that launchers set; memory that this process can still get; Ctrl-C
progress      a progress bar on a terminal, plain lines elsewhere
text          counts, durations and Markdown tables
files/        reads, writes, checks and replaces files safely
normalization  which normalisation of text a vocabulary was trained on
"""

__version__ = "0.2.0"
