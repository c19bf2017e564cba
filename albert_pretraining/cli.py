"""The console script `albert` of an installation: `albert pretrain ...`, `albert data shards ...`."""

from pipeline.__main__ import main

__all__ = ["main"]
