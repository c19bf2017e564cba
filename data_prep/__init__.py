"""Prepares data: raw text -> documents (Parquet) -> shards (Arrow) that training reads.

`python -m data_prep --help` lists the jobs. Each runs alone or on many MPI ranks.

    __main__   the command line
    jobs/      extract, vocab, shards, verify, stats, show
    sources/   kinds of raw collections, and the sample corpus
    wikitext/  MediaWiki markup -> plain text
    corpus/    documents on disk, work units, duplicates
    text/      normalisation, sentences, vocabulary, tokens
    format/    segment pairs, rows, and the shard format
    mpi/       the executor of work units, and the ledger of finished ones
"""

import sys

try:
    from common import interrupts

    interrupts.end_quietly()
    from common.packages import require_siblings
except ImportError:  # then no module of ours can be imported to report this
    hiding_file = getattr(sys.modules.get("common"), "__file__", None) or "another package"
    message = f"the package 'common' of this project is hidden by {hiding_file}; rename that one, or start elsewhere"
    if sys.argv[0] != "-m":
        raise ImportError(message) from None
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)

require_siblings(__file__, ("common",))
