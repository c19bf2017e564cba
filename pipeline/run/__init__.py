"""The life of a run: what surrounds the training loop.

attention_choice  decides which attention kernel a run uses
attention_trial   measures one attention kernel in a process of its own
launch            runs one command on all ranks: rendezvous, validate, monitor, exit
lifecycle         the life of a run: check, open, print the header, train, finish
"""
