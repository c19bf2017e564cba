"""Notices a rank or host that is lost, and a rank that lives but does not come; names it and ends the job.

    rank --- shared memory ---> its watcher --- TCP ---> rank 0's watcher, the judge

Each rank starts a watcher, a small process that needs neither the rank's interpreter nor its threads. So a rank that is
stopped (SIGSTOP), waits for a disk, or computes without releasing Python's lock is noticed as well. Without this, ranks
on other hosts would wait in a collective until its timeout of ten minutes.

progress  what a rank is doing, in memory that its watcher reads
verdict   decides from the reports of all ranks which of them hang
stacks    makes a process write its stacks, and reads its state from /proc
channel   a connection between two watchers
watcher   the process beside each rank; on rank 0 the judge
watch     starts the watcher of a rank, and ends the rank when it says so
"""
