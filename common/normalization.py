"""Which normalisation of text a vocabulary was trained on. The file of the vocabulary says it.

SentencePiece keeps the name of its own normalisation in a model, and does not read it again. Here it is "identity",
followed by what is kept: "identity+case+accents". Any other name, as in published models, stands for ALBERT's own.
"""

from dataclasses import dataclass

_IDENTITY, _CASE, _ACCENTS = "identity", "case", "accents"


@dataclass(frozen=True)
class Normalization:
    """How text is normalised before it is encoded. The default is ALBERT's: no capitals, no accents."""

    keep_case: bool = False
    keep_accents: bool = False

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
        form = "nfkc" if self.keep_accents else "nfkd, no accents"
        return f"{form}{'' if self.keep_case else ', lower case'}, single spaces"


ALBERT_NORMALIZATION = Normalization()
