"""Ranks and hosts that communicate over sockets, apart from the accelerator's collectives.

control     a process group on the host: sums, gathers and broadcasts small values
launcher    what started this rank: stops the rank when its launcher ends, and speaks to torchrun's agent
exits       stop signals, exit statuses, and the end of a rank's process
rendezvous  the numbers of the ranks; they meet and agree before training starts
progress    what a rank is doing, how long that may take, and which ranks hang
watch       notices a lost rank or host and a rank that hangs, and ends the job
"""
