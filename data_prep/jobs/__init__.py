"""The jobs of `python -m data_prep`, one module each, with `add_arguments(parser)` and `run(args)`.

    extract           raw collections -> documents
    train_vocabulary  documents -> vocabulary (`vocab`)
    sentence_sample   the sentences that a vocabulary is trained on
    make_shards       documents and vocabulary -> shards (`shards`)
    unit_shards       the shard of one work unit
    verify            checks every file of a directory against its manifest
    stats             prints tables of a shard set, writes plots
    stats_plots       the plots of `stats`
    show              prints rows of a shard set

The job `sample` is data_prep/sources/sample.py.
"""
