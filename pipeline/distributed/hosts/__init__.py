"""The hosts of a hostfile, examined over ssh before a run.

probe            examines a host; preflight runs this file on every host
query            reads the hostfile, and asks its hosts over ssh
burn_in          measures the hosts under load and names the slow ones
burn_in_program  the program that every host runs for it
"""
