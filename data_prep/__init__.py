"""Raw text to Arrow shards of segment pairs: offline jobs, each also under MPI. `python -m data_prep --help`."""
