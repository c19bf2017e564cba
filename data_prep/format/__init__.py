"""The shard format, and how documents become rows.

pairs           sentences -> segment pairs -> rows
shards          shard files, mapped into memory: writing, reading, checking
shard_manifest  the manifest of a shard set
"""
