"""The shard format, and how documents become rows.

pairs         sentences -> segment pairs
packing       segment pairs -> rows
columns       one shard file: its columns, mapped into memory
shards        shard files and their manifest: writing, reading, checking
row_checks    every row of a shard against the manifest
dataset_card  the README.md of a shard set
"""
