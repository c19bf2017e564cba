"""Figure 1 of the paper: how far each layer moves the embeddings of its tokens, measured on any text."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from common.errors import UserError
from common.files import atomic, owned
from data_prep.text.normalization import normalize
from data_prep.text.vocabulary import CLS_ID, PAD_ID, SEP_ID, Vocabulary
from model import AlbertModel
from model.inspection.similarity import LayerSimilarity, SimilarityMeter

PLOT, VALUES = "similarity.png", "similarity.json"
ROWS_PER_BATCH = 8
MAX_TOKENS = 65_536
"""Tokens of the text that are measured, so that a book takes no longer than a chapter."""


def rows_of(text: str, vocabulary: Vocabulary, length: int, limit: int = MAX_TOKENS) -> Tensor:
    """The first `limit` tokens of `text` as rows [CLS] ... [SEP] of `length`: int64 (rows, length), padded.

    Raises UserError if the text holds no token.
    """
    paragraphs = [normalize(line, vocabulary.normalization) for line in text.splitlines()]
    ids = [token for line in vocabulary.encode([line for line in paragraphs if line]) for token in line][:limit]
    if not ids:
        raise UserError("--text holds no words; name a file of plain text")
    inside = length - 2
    parts = [ids[start : start + inside] for start in range(0, len(ids), inside)]
    rows = torch.full((len(parts), length), PAD_ID)  # (rows, S)
    for row, part in zip(rows, parts):
        row[: len(part) + 2] = torch.tensor([CLS_ID, *part, SEP_ID])
    return rows


def measure(model: AlbertModel, rows: Tensor) -> LayerSimilarity:
    """The similarity over all tokens of `rows` (rows, S) int64, without padding."""
    meter = SimilarityMeter()
    with torch.no_grad():
        for batch in rows.split(ROWS_PER_BATCH):
            mask = batch != PAD_ID  # (B, S)
            meter.add(model(batch, attention_mask=mask).hidden_states, mask)
    return meter.result()


def table(similarity: LayerSimilarity) -> str:
    """A table for people, one line per layer."""
    lines = [f"{'layer':>5} {'L2 distance':>12} {'cosine':>8} {'degrees':>8}"]
    for layer, (distance, cosine, degrees) in enumerate(_by_layer(similarity), start=1):
        lines.append(f"{layer:>5} {distance:>12.3f} {cosine:>8.4f} {degrees:>8.2f}")
    return "\n".join([*lines, f"means over {similarity.tokens:,} tokens"])


def _by_layer(similarity: LayerSimilarity) -> Iterator[tuple[float, float, float]]:
    return zip(similarity.l2_distances, similarity.cosines, similarity.degrees)


def draw(similarity: LayerSimilarity, title: str) -> Figure:
    """Draws two panels over the layers, as in the paper: the L2 distance, and the angle in degrees."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    layers = range(1, len(similarity.cosines) + 1)
    for axes, values, heading, label in zip(
        figure.subplots(1, 2),
        (similarity.l2_distances, similarity.degrees),
        ("L2 distance", "cosine similarity, as an angle"),
        ("distance", "degrees"),
    ):
        axes.set_title(heading, fontsize="medium")
        axes.plot(layers, values, marker="o", markersize=3)
        axes.set(xlabel="layer", ylabel=label, ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    figure.suptitle(f"Input and output of each layer: {title}")
    return figure


def write(out: Path, similarity: LayerSimilarity, title: str) -> None:
    """Writes similarity.json, similarity.png and tensorboard/ to `out`. UserError: `out` cannot be written."""
    from torch.utils.tensorboard import SummaryWriter

    figure = draw(similarity, title)
    try:
        with owned.adding_files(out, "pipeline.similarity") as place:
            figure.savefig(place / PLOT, dpi=150, format="png")
            with SummaryWriter(str(place / "tensorboard")) as writer:
                writer.add_figure("similarity", figure)
            fields = {**asdict(similarity), "degrees": similarity.degrees}
            atomic.write_text(place / VALUES, json.dumps(fields, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}; choose another place") from None
