"""The burn-in of preflight: every host computes and communicates for a while, and the slow one is named.

program  runs on every host: matrix products, then all-reduces with each other host
hosts    starts the program on all hosts over ssh and receives what it measured
results  names the devices and hosts that are slower than the others
"""
