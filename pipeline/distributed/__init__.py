"""Ranks and hosts that communicate over sockets, apart from the accelerator's collectives.

control           a process group on the host: sums, gathers and broadcasts small values
launcher_watch    stops a rank when its launcher ends
exits             stop signals, exit statuses, and the end of a rank's process
elastic           torchrun's agent, which starts ranks again: what it says, and how a rank ends it
rendezvous        the ranks meet and agree before training starts
monitor/          notices a lost rank or host and a rank that hangs, and ends the job
hosts/            the hosts of a hostfile: examined over ssh before a run
"""
