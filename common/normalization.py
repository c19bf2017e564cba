"""Which normalisation of text a vocabulary was trained on. The file of the vocabulary says it.

A tokenizer.json describes BERT's normalisation by itself.

SentencePiece keeps the name of its own normalisation in a model, and does not read it again. Here it is "identity",
followed by what is kept: "identity+case+accents". Any other name, as in published models, stands for ALBERT's own.
"""

from dataclasses import dataclass

_IDENTITY, _CASE, _ACCENTS = "identity", "case", "accents"


@dataclass(frozen=True)
class Normalization:
    """How text is normalised before it is encoded. The default is ALBERT's: no capitals, no accents.

    Attributes:
        keep_case, keep_accents: what is kept.
        of_bert: whether the vocabulary normalises as BERT does: control characters go, and other forms of a letter are
            not replaced.
    """

    keep_case: bool = False
    keep_accents: bool = False
    of_bert: bool = False

    @classmethod
    def of_name(cls, name: str) -> "Normalization":
        """Returns what the name in a SentencePiece model says."""
        first, *kept = name.split("+")
        if first != _IDENTITY:
            return cls()
        return cls(_CASE in kept, _ACCENTS in kept)

    @property
    def name(self) -> str:
        """The name for a SentencePiece model."""
        return _IDENTITY + f"+{_CASE}" * self.keep_case + f"+{_ACCENTS}" * self.keep_accents

    @property
    def description(self) -> str:
        """A few words for people, which manifests contain."""
        if self.of_bert:
            form = "as BERT" if self.keep_accents else "as BERT, no accents"
        else:
            form = "nfkc" if self.keep_accents else "nfkd, no accents"
        return f"{form}{'' if self.keep_case else ', lower case'}, single spaces"


ALBERT_NORMALIZATION = Normalization()
