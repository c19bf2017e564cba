"""The attention kernel of a run on a GPU: rank 0 measures once, all ranks use it, and a later start keeps it.

choice  decides on the kernel of a run, with all ranks
trial   measures one kernel in a process of its own
"""
