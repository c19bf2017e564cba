"""What all packages share. It imports no other package of the project.

errors        `UserError`, which is shown to the user as one line
command_line  command lines whose mistakes raise `UserError`
environment   whole numbers that launchers set
progress      a progress bar on a terminal, plain lines elsewhere
interrupts    Ctrl-C while a command imports, works and ends
json_files    reads JSON files safely, and checks them against a type with bounds
atomic        writes files whole or not at all
owned         decides whether a command may replace or delete a file or directory: only what this project wrote
locks         keeps two commands from writing to one output at the same moment
places        says before the work that a place cannot be written to
checksums     checksums of files and manifests
normalization  which normalisation of text a vocabulary was trained on
memory        memory that this process can still get
names         checks names that come from files before they become paths
packages      finds packages of other projects that hide ours
version       the version of the project
"""
