"""Training data: rows of shards made into batches on the device. Any row at any position can be computed alone.

collate      Collator: samples sentence order, negative segments and masks of a row, and writes it into a batch
masking      chooses the n-grams to predict and replaces their tokens; MaskingSettings
mixture      Mixture: several corpora by weight, read as one stream of batches
packed_rows  sequences [CLS] A [SEP] B [SEP] one after another in a row
prefetch     makes batches ahead of time, and copies them to the device
rng          random numbers that depend on their key only
sampler      position -> row: the order of rows in each epoch
"""
