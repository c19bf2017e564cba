"""Documents on disk, and what is done with a whole corpus.

documents     directories of documents: Parquet files, splits, manifest
work_units    cuts a corpus into work units of about equal size
word_runs     reads texts as runs of words
fingerprints  fingerprints of documents, equal or similar for duplicates
dedup         finds the duplicates in a corpus, on all ranks together
overlaps      finds what is similar to held-out documents
"""
