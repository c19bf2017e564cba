"""The dataset card: the README.md of a shard set."""

import json

from data_prep.format.shards import ShardManifest


def dataset_card(manifest: ShardManifest) -> str:
    """Returns the card as Markdown, with the YAML header that the Hugging Face hub reads."""
    counts = manifest.counts
    rows = [
        ("documents", f"{counts.documents:,}"),
        ("left out (too short)", f"{counts.documents_left_out:,} with {counts.tokens_left_out:,} tokens"),
        ("left out (duplicates)", f"{counts.duplicates_left_out:,} (--dedup {manifest.dedup})"),
        ("sentences", f"{counts.sentences:,}"),
        ("tokens", f"{counts.tokens:,}"),
        ("unknown tokens", f"{counts.unknown_tokens:,}"),
        ("segment pairs", f"{counts.pairs:,} ({counts.pairs_without_b:,} without B)"),
        ("rows", f"{counts.rows:,} of {manifest.max_seq_length} positions, {100 * counts.fill:.2f} % full"),
        ("most pairs in a row", f"{counts.max_pairs_in_row}"),
        ("shards", f"{len(manifest.shards())}"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    sources = "\n".join(
        f"| {s['directory']} | {s['source']} | {s['documents']:,} | {s['text_bytes']:,} |" for s in manifest.sources
    )
    codes = manifest.language.split(",")
    languages = json.dumps(codes[0] if len(codes) == 1 else codes)  # YAML, which reads no without quotes as false
    packing = "as many segment pairs as fit" if manifest.pack else "one segment pair"
    return f"""---
language: {languages}
task_categories: [fill-mask]
---

# ALBERT pre-training rows ({manifest.split} split)

Text in rows of up to {manifest.max_seq_length} positions for masked language modelling and sentence-order prediction.
Made by `python -m data_prep shards`.

| | |
|---|---|
{table}

| corpus | source | documents | bytes of text |
|---|---|---|---|
{sources}

## A row

Each row holds {packing}, without special tokens, masks or padding: those are drawn when it is read.

| column | type | meaning |
|---|---|---|
| tokens | list of uint16 | the tokens of its pairs, each lead, a, b, trail: the order of the text |
| leads | list of uint16 | for each pair, tokens before its first whole sentence |
| a_lengths | list of uint16 | for each pair, tokens of the whole sentences of segment A |
| b_lengths | list of uint16 | for each pair, tokens of those of segment B; 0 in a segment without a partner |
| trails | list of uint16 | for each pair, tokens behind its last whole sentence |
| documents | list of uint32 | number of the document in the corpus, for each pair |

`datasets.Dataset.from_file("shard-00000.arrow")` opens a shard.

## How it was made

- Text: {manifest.normalization}. Vocabulary: `spiece.model`, {manifest.vocabulary_size:,} pieces,
  sha256 `{manifest.vocabulary_sha256}`.
- Every token of every document with {manifest.min_tokens} tokens or more stands in exactly one pair.
- A pair takes up to {manifest.max_seq_length - 3} tokens; with probability {manifest.short_seq_prob} fewer.
- Seed {manifest.seed}.
- `manifest.json` lists all files with their checksums; `python -m data_prep verify` checks them.
"""
