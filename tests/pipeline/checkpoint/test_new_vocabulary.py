"""--new-vocabulary: equal pieces keep their rows, new ones have the mean of their parts."""

import pytest
import torch
from sentencepiece import sentencepiece_model_pb2

from data_prep.text.vocabulary import UNK_ID, Vocabulary
from model import AlbertForPreTraining
from pipeline.checkpoint.initial_weights import carry_over, match_pieces, read_initial_weights
from tests.pipeline.pretraining import trained_models

WORD = "aeaeaeae"
ROWS = "albert.embeddings.word_embeddings.weight"


@pytest.fixture
def extended(corpus, tmp_path):
    """The vocabulary of the corpus with two pieces more: one of known letters, one of an unknown one."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(corpus.vocabulary.read_bytes())
    del proto.pieces[-1]
    for piece in (f"\u2581{WORD}", "\u9f98"):
        proto.pieces.add(piece=piece, score=-9.0)
    file = tmp_path / "extended.model"
    file.write_bytes(proto.SerializeToString())
    return file


def test_rows_follow_their_pieces(corpus, extended, tmp_path):
    old = read_initial_weights(trained_models.export(tmp_path / "old", corpus.vocabulary))
    new, carried = carry_over(old, extended, Vocabulary.load(extended))
    size = len(old.vocabulary)
    assert new.config.vocab_size == len(new.vocabulary) == size + 1
    assert (carried.copied, carried.averaged, carried.unknown) == (size - 1, 1, 1)
    assert torch.equal(new.tensors[ROWS][: size - 1], old.tensors[ROWS][: size - 1])
    parts = [part for part in old.vocabulary.encode([WORD])[0] if old.vocabulary.spellings[part].strip()]
    assert len(parts) > 1
    assert UNK_ID not in parts
    torch.testing.assert_close(new.tensors[ROWS][size - 1], old.tensors[ROWS][parts].mean(0))
    torch.testing.assert_close(new.tensors[ROWS][size], old.tensors[ROWS][5:].mean(0))
    assert new.tensors["mlm_head.bias"].shape == (size + 1,)
    others = old.tensors.keys() - {ROWS, "mlm_head.bias"}
    assert all(torch.equal(new.tensors[name], old.tensors[name]) for name in others)
    AlbertForPreTraining(new.config).load_state_dict(new.tensors)


def test_pieces_of_another_kind_are_matched_by_spelling_and_place(vocabulary, tmp_path):
    begins = next(piece for piece in vocabulary.pieces if len(piece) > 2 and piece.startswith("\u2581"))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", begins[1:], "##e", "##eaae"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    carried = match_pieces(vocabulary, Vocabulary.load(tmp_path / "vocab.txt"))
    named = dict(zip(pieces, carried.sources))
    assert [vocabulary.pieces[i] for i in named[begins[1:]]] == [begins]
    assert [vocabulary.pieces[i] for i in named["##e"]] == ["e"]
    assert "".join(vocabulary.spellings[i] for i in named["##eaae"]).strip() == "eaae"
    assert [named[piece] for piece in pieces[:5]] == [[0], [1], [2], [3], [4]]
