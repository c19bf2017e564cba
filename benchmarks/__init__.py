"""Measurements beside other systems, each a command of its own: `python -m benchmarks.NAME --help`.

batches            rows a second that one thread makes into batches
between_steps      what a step waits for beside the computation
book_losses        what the preparation of each book removes
chaos/             100 random faults in one training on three hosts, and what each cost
data_prep          data preparation beside a bare SentencePiece
extract_gaps       what the extraction of Wikipedia loses
finetune           fine-tuning beside transformers.Trainer; an evaluation of SQuAD
gpu/               what a GPU can do with this project, as a page: `make gpu`
pair_shares        segment pairs without a partner, beside the chunks of the paper's procedure
planning           planning of `extract` for 100,000 files
rank_costs         where two ranks of data preparation spend more processor time than one
save               seconds of a checkpoint
sentence_boundaries  precision, recall and speed of splitting English text into sentences
seek               seconds and memory to open four billion tokens in the middle of training
spikes             false alarms of the detector of spikes on real loss curves
study/             what small models learn: a whole study, trials of settings, an independent implementation
train_step         a training step beside transformers
two_versions       a training step of this version beside that of another one

shared/            what several measurements use

Results are in results/.
"""
