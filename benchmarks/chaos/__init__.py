"""Random faults in one training over three hosts, and what each of them cost (docs/reliability.md).

training   the run: its data, its command line, its hosts with torchrun's agents
rank       a rank whose bits can be flipped from outside
faults     the kinds of faults, and their random order
suffering  makes one fault after another, and measures what it costs
page       compares the end with that of an undisturbed run, and writes the page
"""
