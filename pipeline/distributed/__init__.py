"""Ranks and hosts that communicate over sockets, apart from the accelerator's collectives.

control           a process group on the host: sums, gathers and broadcasts small values
signal_answers    answers a stop signal at once
output            output that nobody may be able to read any more
terminal          lets Ctrl-C reach rank 0 alone
launcher_watch    stops a rank when its launcher ends
exits             stop signals, exit statuses, and the end of a rank's process
elastic           torchrun's agent, which starts ranks again: what it says, and how a rank ends it
rendezvous        the ranks meet and agree before training starts
liveness          notices a lost rank or host and ends the job
hangs/            notices a rank that lives but does not come, and ends the job
collectives       notes every collective that this process enters
collective_times  how long this rank waits in collectives
ports             a port for ranks that are about to start
connections       a server on a free port, and lines of JSON
descriptors       open files of rank 0: how many it needs, and the limit
burn_in/          measures hosts under load and names the slow ones
hosts/            the hosts of a hostfile: examined over ssh before a run
"""
