"""Cases that the processes of one test file run."""
