"""What all packages share. It imports no other package of the project.

errors        `UserError`, which is shown to the user as one line
command_line  command lines whose mistakes raise `UserError`
environment   whole numbers that launchers set
progress      a progress bar on a terminal, plain lines elsewhere; counts and durations as text
interrupts    Ctrl-C while a command imports, works and ends
garbage       keeps the garbage collector away from what a command imports
files/        reads, writes, checks and replaces files safely
normalization  which normalisation of text a vocabulary was trained on
memory        memory that this process can still get
packages      finds packages of other projects that hide ours
version       the version of the project
"""
