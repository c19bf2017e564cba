"""Training data: rows of shards made into batches on the device. Any row at any position can be computed alone.

collate          Collator: draws sentence order and masks of a row, and writes it into a batch
describe         prints rows for people
mask_statistics  counts n-grams, replacements and labels over many rows
masking          chooses the n-grams to predict and replaces their tokens; MaskingSettings
mixture          Mixture: several corpora by weight, read as one stream of batches
partners         negative second segments for next-sentence prediction
prefetch         makes batches ahead of time, and copies them to the device
rng              random numbers that depend on their key only
row_layout       the layout of sequences in a row, [CLS] A [SEP] B [SEP]
sampler          position -> row: the order of rows in each epoch
"""
