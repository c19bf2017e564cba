"""Figure 1 of the paper for any checkpoint and text: how far each layer moves the embeddings of its tokens.

    python -m pipeline.similarity --model albert-base --text FILE --out similarity

--model is the --output of pipeline.pretrain or pipeline.finetune, or an exported model that holds its vocabulary.
Prints a table; DIR gets it as similarity.json, the figure as similarity.png, and the same figure for TensorBoard.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from data_prep import atomic
from data_prep.command_line import Parser
from data_prep.errors import UserError
from data_prep.text import normalize
from data_prep.vocabulary import CLS_ID, PAD_ID, SEP_ID, Vocabulary
from model import AlbertModel
from model.checkpoint import check_tensors
from model.similarity import LayerSimilarity, SimilarityMeter
from pipeline.initial import read_initial

BATCH = 8  # rows
MAX_TOKENS = 65_536  # of the text, so that a whole book takes no longer than a chapter


def load(directory: Path) -> tuple[AlbertModel, Vocabulary]:
    """Encoder, in evaluation mode, and vocabulary of a run or an export, whatever its head.

    Raises UserError where they are not there, or do not belong together.
    """
    initial = read_initial(directory, "--model")
    model = AlbertModel(initial.config, add_pooling_layer=False)
    state = model.state_dict()
    found = {name: initial.tensors[f"albert.{name}"] for name in state if f"albert.{name}" in initial.tensors}
    try:
        check_tensors(directory, state, found)
    except ValueError as error:
        raise UserError(f"--model: {error}") from None
    model.load_state_dict(found)
    return model.eval(), initial.vocabulary


def rows_of(text: str, vocabulary: Vocabulary, length: int, limit: int = MAX_TOKENS) -> Tensor:
    """The first `limit` tokens of `text` as rows [CLS] ... [SEP] of `length`; int64 (rows, length), padded.

    Raises UserError where the text holds no token.
    """
    paragraphs = [normalize(line) for line in text.splitlines()]
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
    """The similarity over all tokens of `rows` (rows, S) int64, padding left out."""
    meter = SimilarityMeter()
    with torch.no_grad():
        for batch in rows.split(BATCH):
            mask = batch != PAD_ID  # (B, S)
            meter.add(model(batch, attention_mask=mask).hidden_states, mask)
    return meter.result()


def table(similarity: LayerSimilarity) -> str:
    """A line a layer."""
    lines = [f"{'layer':>5} {'L2 distance':>12} {'cosine':>8} {'degrees':>8}"]
    for layer, row in enumerate(_by_layer(similarity), start=1):
        lines.append(f"{layer:>5} {row[0]:>12.3f} {row[1]:>8.4f} {row[2]:>8.2f}")
    return "\n".join([*lines, f"means over {similarity.tokens:,} tokens"])


def _by_layer(similarity: LayerSimilarity) -> Iterator[tuple[float, float, float]]:
    return zip(similarity.l2_distances, similarity.cosines, similarity.degrees)


def draw(similarity: LayerSimilarity, title: str) -> Figure:
    """Two panels over the layers, as in the paper: L2 distance, and the angle in degrees."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    layers = range(1, len(similarity.cosines) + 1)
    for axes, values, label in zip(
        figure.subplots(1, 2),
        (similarity.l2_distances, similarity.degrees),
        ("L2 distance", "cosine similarity, as an angle in degrees"),
    ):
        axes.plot(layers, values, marker="o", markersize=3)
        axes.set(xlabel="layer", ylabel=label, ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    figure.suptitle(f"Input and output of each layer: {title}")
    return figure


def write(out: Path, similarity: LayerSimilarity, title: str) -> None:
    """Writes similarity.json, similarity.png and tensorboard/ to `out`. Raises UserError where that is not possible."""
    from torch.utils.tensorboard import SummaryWriter

    figure = draw(similarity, title)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(out / "similarity.png") as temporary:
            figure.savefig(temporary, dpi=150, format="png")
        with SummaryWriter(str(out / "tensorboard")) as writer:
            writer.add_figure("similarity", figure)
        fields = {**asdict(similarity), "degrees": similarity.degrees}
        atomic.write_text(out / "similarity.json", json.dumps(fields, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}; choose another place") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = Parser(prog="python -m pipeline.similarity", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="a run, or an exported model")
    parser.add_argument("--text", required=True, type=Path, metavar="FILE", help="plain text, UTF-8")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where table and figure go")
    try:
        args = parser.parse_all(sys.argv[1:] if argv is None else argv)
        try:
            text = args.text.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise UserError(f"--text {args.text} cannot be read as UTF-8 text; name another file") from None
        model, vocabulary = load(args.model)
        similarity = measure(model, rows_of(text, vocabulary, model.config.max_position_embeddings))
        write(args.out, similarity, args.model.name)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(similarity))
    print(f"wrote {args.out / 'similarity.png'}; tensorboard --logdir {args.out / 'tensorboard'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
