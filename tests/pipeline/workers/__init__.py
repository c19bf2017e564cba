"""What the processes of the multi-process tests run."""
