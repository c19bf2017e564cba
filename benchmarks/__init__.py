"""Measurements beside other systems, each a command of its own: `python -m benchmarks.NAME --help`.

encoders           scores and speed of a fine-tuned encoder beside transformers.Trainer, several tasks and seeds
gpu/               what a GPU can do with this project, as a page: `make gpu`
many_ranks         what rank 0 of many ranks computes because they are many
student            a small ALBERT distilled from a published BERT: `make student`
study/             what a small model learns: from text to fine-tuned tasks, `make study`
shared/            what several measurements use

Results are in results/.
"""
