"""Prepares data: raw text -> documents (Parquet) -> shards (Arrow) that training reads.

`python -m data_prep --help` lists the jobs. Each runs alone or on many MPI ranks.

    __main__   the command line
    jobs/      extract, vocab, shards, verify, stats, show
    sources/   kinds of raw collections, and the sample corpus
    wikitext/  MediaWiki markup -> plain text
    corpus/    documents on disk, work units, duplicates
    text/      normalisation, sentences, vocabulary, tokens
    format/    segment pairs, rows, and the shard format
    mpi        ranks that share work units, and the records of finished ones
"""

from common import environment

environment.begin_command()
