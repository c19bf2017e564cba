"""Draws figure 1 of the paper for any checkpoint and text: how far each layer moves the embeddings of its tokens.

    python -m pipeline.similarity --model albert-base --text FILE --out similarity

--model is the --output of pipeline.pretrain or pipeline.finetune, or an exported model with its vocabulary. The command
prints a table, and writes similarity.json, similarity.png, and the same figure for TensorBoard to --out.

The measures are the L2 distance and the cosine of a layer's input and output (section 3.1). In ALBERT both change more
smoothly from layer to layer than in BERT. Neither goes to 0, so the shared layer does not converge to a fixed point.

Legend of the shapes: B rows, S positions in a row, H hidden_size, N tokens that count.
"""

import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor
from torch.nn import functional

from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import atomic, owned
from common.files.json_files import read_text
from data_prep.text.normalization import normalize
from data_prep.text.vocabulary import CLS_ID, PAD_ID, SEP_ID, Vocabulary
from model import AlbertModel
from model.checkpoint import check_tensors
from pipeline.checkpoint.initial_weights import read_initial_weights

PLOT, VALUES = "similarity.png", "similarity.json"
ROWS_PER_BATCH = 8
MAX_TOKENS = 65_536
"""Tokens of the text that are measured, so that a book takes no longer than a chapter."""


@entry_point
def main(argv: Sequence[str]) -> None:
    """Measures a model, and writes table and figure. UserError: a mistake."""
    parser = Parser(prog="python -m pipeline.similarity", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="a run, or an exported model")
    parser.add_argument("--text", required=True, type=Path, metavar="FILE", help="plain text, UTF-8")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory of table and figure")
    args = parser.parse_all(argv)
    text = read_text(args.text, "name another --text, in UTF-8")
    owned.check_addable(args.out, [PLOT, VALUES])
    model, vocabulary = load_encoder(args.model)
    rows = rows_of(text, vocabulary, model.config.max_position_embeddings)
    similarity = measure(model, rows)
    write(args.out, similarity, args.model.name)
    print(table(similarity))
    print(f"wrote {args.out / PLOT}; tensorboard --logdir {args.out / 'tensorboard'}")


def load_encoder(directory: Path) -> tuple[AlbertModel, Vocabulary]:
    """Encoder, in evaluation mode, and vocabulary of a run or an export with any head.

    Raises UserError if one of them is missing, or they do not belong together.
    """
    initial = read_initial_weights(directory, "--model")
    model = AlbertModel(initial.config, add_pooling_layer=False)
    state = model.state_dict()
    found = {name: initial.tensors[f"albert.{name}"] for name in state if f"albert.{name}" in initial.tensors}
    try:
        check_tensors(directory, state, found)
    except ValueError as error:
        raise UserError(f"--model: {error}") from None
    model.load_state_dict(found)
    return model.eval(), initial.vocabulary


@dataclass(frozen=True)
class LayerSimilarity:
    """Means over tokens, one number for each layer, from the first to the last.

    Attributes:
        l2_distances: mean of |output - input|.
        cosines: mean of output . input / (|output| |input|).
        tokens: number of tokens.
    """

    l2_distances: tuple[float, ...]
    cosines: tuple[float, ...]
    tokens: int

    @property
    def degrees(self) -> tuple[float, ...]:
        """The angle of each mean cosine, in degrees, as in the paper's figure."""
        return tuple(math.degrees(math.acos(max(-1.0, min(1.0, cosine)))) for cosine in self.cosines)


@torch.no_grad()
def similarity_sums(hidden_states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """The sums over tokens of each layer's L2 distance and cosine: float64 (2, layers).

    Args:
        hidden_states: the first layer's input, then every layer's output, (B, S, H) each; see
            `AlbertModelOutput.hidden_states`.
        mask: bool (B, S), True on tokens that count, False on padding.
    """
    states = [hidden[mask].double() for hidden in hidden_states]  # (N, H) each
    pairs = list(itertools.pairwise(states))
    distances = [(after - before).norm(dim=-1).sum() for before, after in pairs]  # () each
    cosines = [functional.cosine_similarity(after, before).sum() for before, after in pairs]  # () each
    return torch.stack((torch.stack(distances), torch.stack(cosines)))  # (2, layers)


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
    sums = torch.zeros((), dtype=torch.float64)  # ()
    with torch.no_grad():
        for batch in rows.split(ROWS_PER_BATCH):
            mask = batch != PAD_ID  # (B, S)
            sums = sums + similarity_sums(model(batch, attention_mask=mask).hidden_states, mask)  # (2, layers)
    tokens = int((rows != PAD_ID).sum())
    distances, cosines = (sums / tokens).tolist()
    return LayerSimilarity(tuple(distances), tuple(cosines), tokens)


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


if __name__ == "__main__":
    sys.exit(main())
