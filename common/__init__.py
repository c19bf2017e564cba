"""What all packages share. It imports no other package of the project.

errors        `UserError`, which is shown to the user as one line
command_line  command lines whose mistakes raise `UserError`
environment   whole numbers that launchers set; memory that this process can still get
progress      a progress bar on a terminal, plain lines elsewhere
text          counts, durations and Markdown tables
interrupts    Ctrl-C while a command imports, works and ends
files/        reads, writes, checks and replaces files safely
normalization  which normalisation of text a vocabulary was trained on
packages      finds packages of other projects that hide ours
version       the version of the project
"""
