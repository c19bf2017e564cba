"""Tokens have the right characters of the un-normalised text, and equal those that pre-training reads."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.normalization import Normalization
from data_prep.text.encoder import Encoder
from data_prep.text.normalization import normalize, normalize_word
from data_prep.text.offsets import OffsetEncoder
from data_prep.text.sentencepiece_vocabulary import WORD_START
from data_prep.text.vocabulary import UNK_ID

# Letters that grow, shrink, vanish or change case in normalisation, beside plain ones and every kind of space.
DIFFICULT = st.sampled_from(list("aZé½ﬁİßΣς㎏한΅̈`'\"“ⅷ…2,. \u3000\u00a0\u200b\n\0\u0301\u0345ǅ"))
TEXTS = st.text(DIFFICULT | st.characters(codec="utf-8"), max_size=40)


@given(TEXTS, st.builds(Normalization, st.booleans(), st.booleans()))
@settings(deadline=None, max_examples=400)
@example("a\u0327\u0301b \u1112\u1161\u11abx か\u3099\u3099 İI", Normalization(False, True))
def test_a_word_is_normalised_by_any_rule_as_a_text_is(text, kind):
    for word in text.split():
        normalised, sources = normalize_word(word, kind)
        assert normalised == normalize(word, kind)
        assert len(sources) == len(normalised)
        assert sources == sorted(sources)
        # What comes before a source makes what comes before its characters.
        for position, source in enumerate(sources):
            if position and sources[position - 1] != source and not kind.keep_case:
                made = normalize(word[:source], kind).replace("ς", "σ")
                assert normalised[:position].replace("ς", "σ").rstrip().startswith(made)


@given(TEXTS)
@settings(deadline=None, max_examples=400)
def test_tokens_are_those_of_pre_training_and_stand_where_they_say(vocabulary, text):
    ids, starts, ends = OffsetEncoder(vocabulary).encode(text)
    assert ids.tolist() == Encoder(vocabulary).encode([text])[0].tolist()
    assert (starts <= ends).all()
    assert (starts[1:] >= starts[:-1]).all()
    assert (ends[1:] >= ends[:-1]).all()
    assert len(ids) == 0 or (starts[0] >= 0 and ends[-1] <= len(text))
    assert not any(text[start:end].strip("\0").isspace() for start, end in zip(starts, ends) if end > start)


@given(TEXTS)
@settings(deadline=None, max_examples=400)
def test_the_stretch_of_some_tokens_spells_these_tokens(vocabulary, text):
    """The text from one token's start to another's end encodes to these tokens, if no character makes several."""
    encoder = OffsetEncoder(vocabulary)
    ids, starts, ends = encoder.encode(text)
    if UNK_ID in ids:
        return
    for first in range(len(ids)):
        for last in range(first, min(first + 3, len(ids))):
            spelled = normalize(text[starts[first] : ends[last]])
            pieces = "".join(vocabulary.pieces[number] for number in ids[first : last + 1].tolist())
            wanted = pieces.replace(WORD_START, " ").strip()
            if wanted and not pieces.endswith(WORD_START):
                # A sigma cut off from its word has the other form.
                assert wanted.replace("ς", "σ") in spelled.replace("ς", "σ")
                shared_start = first > 0 and starts[first] < ends[first - 1]
                shared_end = last + 1 < len(ids) and ends[last] > starts[last + 1]
                if not (shared_start or shared_end):
                    assert wanted.replace("ς", "σ") == spelled.replace("ς", "σ")


def test_known_texts(vocabulary):
    encoder = OffsetEncoder(vocabulary)

    def stretches(text):
        _, starts, ends = encoder.encode(text)
        return [text[start:end] for start, end in zip(starts, ends) if end > start]

    assert "".join(stretches("the  Café\u0301 was")) == "theCafé\u0301was"
    assert stretches("") == []
    assert stretches(" \n ") == []
    assert "".join(stretches("``so''")) == "``so''"
