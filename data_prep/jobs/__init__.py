"""The jobs of `python -m data_prep`, one module each, with `add_arguments(parser)` and `run(args)`.

    extract           raw collections -> documents
    train_vocabulary  documents -> vocabulary (`vocab`)
    make_shards       documents and vocabulary -> shards (`shards`)
    verify            checks every file of a directory against its manifest
    stats             prints what a shard set holds
    show_rows         prints rows of a shard set

The job `sample` is data_prep/sources/sample.py.
"""
