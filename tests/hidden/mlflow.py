"""Stands before the installed MLflow in the processes that tests start.

DeepSpeed's launcher imports MLflow where it is installed, twice in each start, and each takes a second of a processor.
"""

raise ImportError("hidden by tests/hidden")
