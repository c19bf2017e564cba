"""Notices a rank that lives but does not come, names it, keeps every rank's stacks, and ends the job.

    rank --- shared memory ---> its watcher --- TCP ---> rank 0's watcher: judges, writes RUN/hangs/, ends the job

Each rank starts a watcher, a small process that needs neither the rank's interpreter nor its threads. So a rank that is
stopped (SIGSTOP), waits for a disk, or computes without releasing Python's lock is noticed as well.

progress       what a rank is doing, in memory that its watcher reads
compilation    records when torch.compile compiles
verdict        decides from the reports of all ranks which of them hang
stacks         makes a process write its stacks, and reads its state from /proc
watcher        the process beside each rank
watch          starts and ends the watcher of a rank
"""
