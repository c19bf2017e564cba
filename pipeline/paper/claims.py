"""The paper's claims in small: settings that are pre-trained with the same compute, and compared seed by seed.

A claim compares sides. A side is one way to pre-train the small model of a plan. Sides that several claims compare are
run once. The compute of a side is its number of floating-point operations, so a larger model reads fewer tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.errors import UserError
from model import AlbertConfig
from model.counts import model_flops
from pipeline.data.masking import MaskingSettings
from pipeline.paper.printed_tables import TABLES

PRESET = "albert-tiny"
MASK_PROBABILITY = 0.3
ALL_CLAIMS = "claims"
"""The name on the command line that stands for all claims."""
LEARNING_RATE = 0.002
"""The peak, of AdamW, for all sides."""
CHANCE = 0.5


@dataclass(frozen=True)
class Side:
    """One way to pre-train.

    Attributes:
        title: for people.
        fields: of `AlbertConfig`, which replace those of the plan's model.
        objective: "sop" or "nsp".
        max_ngram: words of the longest masked n-gram.
        rows: of a batch.
        length: tokens of a row.
        compute: operations of a run, as a multiple of those of `BASE`.
    """

    title: str
    fields: Mapping[str, object] = field(default_factory=dict)
    objective: str = "sop"
    max_ngram: int = 3
    rows: int = 8
    length: int = 128
    compute: float = 1.0


BASE = Side("SOP, all shared, E 128, no dropout, n-grams")
"""What most sides are compared with. Its run defines the compute."""


@dataclass(frozen=True)
class Difference:
    """A difference that a claim is about: a metric of `first` minus that of `second`, or minus chance (None)."""

    metric: str
    first: str
    second: str | None


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        name: on the command line: of the paper's table, or "masks".
        caption: what is compared.
        paper: what the paper says.
        sides: keys of `SIDES`.
        differences: what is compared, in the order of the page.
    """

    name: str
    caption: str
    paper: str
    sides: tuple[str, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Plan:
    """The size of the claims' runs.

    Attributes:
        model: fields of `AlbertConfig` that replace those of albert-tiny.
        tokens: that `BASE` reads.
        vocabulary_size: pieces.
        evaluated_tokens: held-out tokens of the evaluation at the end, at most.
    """

    model: Mapping[str, object]
    tokens: int
    vocabulary_size: int
    evaluated_tokens: int

    def model_fields(self, side: Side) -> dict[str, object]:
        """The fields that replace those of albert-tiny."""
        return {**self.model, **side.fields}

    def row_flops(self, side: Side) -> int:
        """Operations of training on one row of a side."""
        fields: dict[str, Any] = self.model_fields(side)
        fields |= {"vocab_size": self.vocabulary_size, "max_position_embeddings": side.length}
        predictions = MaskingSettings(MASK_PROBABILITY).max_predictions(side.length)
        return model_flops(AlbertConfig.preset(PRESET, **fields), side.length, predictions)

    def steps(self, side: Side) -> int:
        """The steps of a side: as many as its compute allows."""
        flops = side.compute * self.tokens / BASE.length * self.row_flops(BASE)
        return max(1, round(flops / (side.rows * self.row_flops(side))))

    def eval_batches(self, side: Side) -> int:
        """Batches of the evaluation."""
        return max(1, self.evaluated_tokens // (side.length * side.rows))


SMALL = Plan(model={"num_hidden_layers": 4}, tokens=800_000, vocabulary_size=2000, evaluated_tokens=2**18)
"""For two cores: docs/study.md has the time that it takes."""

# NSP is learned only with some tens of pairs in a batch, and after several hundred updates.
_PAIRS: dict[str, Any] = {"fields": {"num_hidden_layers": 2}, "rows": 32, "compute": 1.7}
_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
# Half the width has a quarter of the parameters in each of four layers.
_HALF = {"parameter_sharing": "none", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256}

SIDES: dict[str, Side] = {
    "base": BASE,
    "sop": Side("SOP", **_PAIRS),
    "nsp": Side("NSP", objective="nsp", **_PAIRS),
    "unshared": Side("no sharing, equal width", {"parameter_sharing": "none"}),
    "unshared-64": Side("no sharing, half the width, equal parameters", _HALF),
    "embedding-64": Side("E 64", {"embedding_size": 64}),
    "embedding-256": Side("E 256", {"embedding_size": 256}),
    "dropout": Side("dropout 0.1", _DROPOUT),
    "single-words": Side("single words masked", max_ngram=1),
}

MLM, SOP, NSP = "mlm_below_unigram", "sop_accuracy", "nsp_accuracy"
METRICS = {MLM: "MLM", SOP: "SOP", NSP: "NSP"}
"""The compared metrics, from 0 to 1, and their titles."""


def _printed(table: str, row: str, column: str = "avg") -> float:
    """The first value of a cell of the paper."""
    return next(printed for printed in TABLES[table].rows if printed.name == row).cells[column][0]


def _between(metrics: Sequence[str], *pairs: tuple[str, str]) -> tuple[Difference, ...]:
    return tuple(Difference(metric, first, second) for first, second in pairs for metric in metrics)


CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim(
            "5",
            "Table 5: the sentence loss, each model scored on both sentence tasks",
            f"a model that learned SOP reaches {_printed('5', 'SOP', 'nsp_accuracy')} on NSP; one that learned NSP "
            f"reaches {_printed('5', 'NSP', 'sop_accuracy')} on SOP, which is chance",
            ("sop", "nsp"),
            (
                Difference(SOP, "sop", None),
                Difference(NSP, "sop", None),
                Difference(NSP, "nsp", None),
                Difference(SOP, "nsp", None),
                Difference(MLM, "sop", "nsp"),
            ),
        ),
        Claim(
            "4",
            "Table 4: sharing all against none",
            f"at equal width and E 128, all shared {_printed('4', 'E=128, all shared')}, not shared "
            f"{_printed('4', 'E=128, not shared')} (average of five tasks)",
            ("base", "unshared", "unshared-64"),
            _between((MLM, SOP), ("base", "unshared"), ("base", "unshared-64")),
        ),
        Claim(
            "3",
            "Table 3: the embedding size",
            "all shared, E 64, 128 and 256: "
            + ", ".join(str(_printed("3", f"all shared, E={size}")) for size in (64, 128, 256))
            + " (average of five tasks)",
            ("embedding-64", "base", "embedding-256"),
            _between(
                (MLM, SOP), ("base", "embedding-64"), ("embedding-256", "base"), ("embedding-256", "embedding-64")
            ),
        ),
        Claim(
            "8",
            "Table 8: dropout",
            f"with dropout {_printed('8', 'with dropout')}, without {_printed('8', 'without dropout')} (average of "
            "five tasks, ALBERT xxlarge after a million steps)",
            ("base", "dropout"),
            _between((MLM, SOP), ("base", "dropout")),
        ),
        Claim(
            "masks",
            "n-grams of up to three words masked, against single words",
            "n-grams, without a comparison. Held-out rows have n-gram masks for both sides",
            ("base", "single-words"),
            _between((MLM, SOP), ("base", "single-words")),
        ),
    )
}


def find_claims(name: str) -> list[Claim]:
    """The claim called `name`, or all of them for "claims". Raises UserError for an unknown name."""
    if name == ALL_CLAIMS:
        return list(CLAIMS.values())
    if name in CLAIMS:
        return [CLAIMS[name]]
    known = ", ".join([*CLAIMS, ALL_CLAIMS])
    if name in TABLES:
        raise UserError(f"scale small does not make table {name}; choose one of {known}, or --scale paper")
    raise UserError(f"table {name!r} is not known; choose one of {known}")


def sides_of(claims: Sequence[Claim]) -> list[str]:
    """The keys of all sides that the claims compare, each once."""
    return list(dict.fromkeys(key for claim in claims for key in claim.sides))
