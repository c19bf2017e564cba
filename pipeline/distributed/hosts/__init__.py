"""The hosts of a hostfile, examined over ssh before a run.

hostfile    reads DeepSpeed's hostfile and `.deepspeed_env`
probe       examines a host; preflight runs this file on every host
query       asks every host of a hostfile over ssh
comparison  what keeps a host from training, by its answer
"""
