"""Draws figure 1 of the paper for any checkpoint and text: how far each layer moves the embeddings of its tokens.

    python -m pipeline.similarity --model albert-base --text FILE --out similarity

--model is the --output of pipeline.pretrain or pipeline.finetune, or an exported model with its vocabulary. The command
prints a table, and writes similarity.json, similarity.png, and the same figure for TensorBoard to --out.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import owned
from common.files.json_files import read_text
from data_prep.text.vocabulary import Vocabulary
from model import AlbertModel
from model.checkpoint import check_tensors
from pipeline.analysis import layer_similarity
from pipeline.checkpoint.initial_weights import read_initial_weights


@entry_point
def main(argv: Sequence[str]) -> None:
    """Measures a model, and writes table and figure. UserError: a mistake."""
    parser = Parser(prog="python -m pipeline.similarity", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="a run, or an exported model")
    parser.add_argument("--text", required=True, type=Path, metavar="FILE", help="plain text, UTF-8")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory of table and figure")
    args = parser.parse_all(argv)
    text = read_text(args.text, "name another --text, in UTF-8")
    owned.check_addable(args.out, [layer_similarity.PLOT, layer_similarity.VALUES])
    model, vocabulary = load_encoder(args.model)
    rows = layer_similarity.rows_of(text, vocabulary, model.config.max_position_embeddings)
    similarity = layer_similarity.measure(model, rows)
    layer_similarity.write(args.out, similarity, args.model.name)
    print(layer_similarity.table(similarity))
    print(f"wrote {args.out / layer_similarity.PLOT}; tensorboard --logdir {args.out / 'tensorboard'}")


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


if __name__ == "__main__":
    sys.exit(main())
