"""The tables of the ALBERT paper: what each row was pre-trained with, and the values printed for it.

The values are those of arXiv 1909.11942v6 (ICLR 2020), in percent unless said otherwise. They were copied row by row
and checked against a second copy of the text. Some of the paper's tables contradict each other: MNLI of ALBERT base is
81.6 in Tables 2, 3 and 7, and 82.0 in Tables 4 and 5. Each table here has the values that the paper prints in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.errors import UserError

BATCH = 4096
"""Sequences of 512 tokens in a batch of the paper's pre-training."""


@dataclass(frozen=True)
class PreTraining:
    """What one row of a table is pre-trained with; None stands for the value of the preset.

    Attributes:
        model: a preset of `AlbertConfig`.
        embedding_size: E.
        parameter_sharing: "all", "attention", "ffn" or "none".
        objective: "sop", "nsp" or "mlm" (no sentence loss).
        dropout: probability, of hidden states and of attention.
        steps: of batches of `BATCH` sequences.
        additional_data: whether the corpus is more than Wikipedia and BookCorpus.
    """

    model: str
    embedding_size: int | None = None
    parameter_sharing: str | None = None
    objective: str | None = None
    dropout: float | None = None
    steps: int = 125_000
    additional_data: bool = False


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: key of the cells.
        title: as printed.
        task: the name of the fine-tuning task that it measures; None for a column that is computed from the row.
        split: of the task's data.
        metrics: the values of a cell. "best_f1|f1" means: f1 if best_f1 is missing.
    """

    name: str
    title: str
    task: str | None = None
    split: str = "dev"
    metrics: tuple[str, ...] = ()


Cell = tuple[float, ...]
"""The values of one cell: one number, or two such as F1 and exact match."""


@dataclass(frozen=True)
class TableRow:
    """One row of a table.

    Attributes:
        name: as printed.
        pretraining: None for the systems of others, which the paper prints for comparison; they are not run.
        cells: of the paper, by column.
        ensemble: whether several fine-tuned models are averaged.
    """

    name: str
    pretraining: PreTraining | None
    cells: Mapping[str, Cell]
    ensemble: bool = False


@dataclass(frozen=True)
class Table:
    """One table of the paper; `name` is its name on the command line."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks that its columns need, in their order."""
        return tuple(dict.fromkeys(column.task for column in self.columns if column.task is not None))


_BEST = ("best_f1|f1", "best_exact|exact")
"""SQuAD 2.0 at the threshold that is best on the same questions, as the paper's code reports it."""

DOWNSTREAM = (
    Column("squad1", "SQuAD1.1", "squad1", metrics=("f1", "exact")),
    Column("squad2", "SQuAD2.0", "squad2", metrics=_BEST),
    Column("mnli", "MNLI", "mnli", "dev_matched", ("accuracy",)),
    Column("sst2", "SST-2", "sst2", metrics=("accuracy",)),
    Column("race", "RACE", "race", metrics=("accuracy",)),
    Column("avg", "Avg"),
)
"""The five tasks of Tables 2 to 8. Avg is their mean, F1 and EM of each SQuAD averaged first."""

GLUE = (
    Column("mnli", "MNLI", "mnli", "dev_matched", ("accuracy",)),
    Column("qnli", "QNLI", "qnli", metrics=("accuracy",)),
    Column("qqp", "QQP", "qqp", metrics=("accuracy",)),
    Column("rte", "RTE", "rte", metrics=("accuracy",)),
    Column("sst2", "SST", "sst2", metrics=("accuracy",)),
    Column("mrpc", "MRPC", "mrpc", metrics=("accuracy",)),
    Column("cola", "CoLA", "cola", metrics=("matthews",)),
    Column("stsb", "STS", "stsb", metrics=("pearson",)),
)

GLUE_SCORE: dict[str, tuple[tuple[str, str], ...]] = {
    "cola": (("dev", "matthews"),),
    "sst2": (("dev", "accuracy"),),
    "mrpc": (("dev", "f1"), ("dev", "accuracy")),
    "stsb": (("dev", "pearson"), ("dev", "spearman")),
    "qqp": (("dev", "f1"), ("dev", "accuracy")),
    "mnli": (("dev_matched", "accuracy"), ("dev_mismatched", "accuracy")),
    "qnli": (("dev", "accuracy"),),
    "rte": (("dev", "accuracy"),),
    "wnli": (("dev", "accuracy"),),
}
"""The metrics in the average of the GLUE leaderboard. The metrics of each task are averaged first, then the tasks."""

_PARAMETERS = Column("parameters", "Parameters (millions)")
_SPEED = Column("speed", "Speed (BERT-large = 1)")
_INTRINSIC = tuple(Column(f"{name}_accuracy", name.upper()) for name in ("mlm", "nsp", "sop"))
_STATE_OF_THE_ART = (
    Column("squad1", "SQuAD1.1 dev", "squad1", metrics=("f1", "exact")),
    Column("squad2", "SQuAD2.0 dev", "squad2", metrics=_BEST),
    Column("race", "RACE test", "race", "test", ("accuracy",)),
    Column("race_levels", "RACE test, middle/high", "race", "test", ("middle", "high")),
)


def _rows(columns: Sequence[Column], lines: Sequence[tuple[str, PreTraining | None, str]]) -> tuple[TableRow, ...]:
    """Rows of (name, pre-training, cells); a cell is a number, "F1/EM", or "-" if there is none."""
    rows = []
    for name, pretraining, text in lines:
        printed = text.split()
        if len(printed) != len(columns):
            raise AssertionError(f"{name}: {len(printed)} cells for {len(columns)} columns")
        cells = {
            column.name: tuple(float(value) for value in cell.split("/"))
            for column, cell in zip(columns, printed)
            if cell != "-"
        }
        rows.append(TableRow(name, pretraining, cells, ensemble="ensemble" in name))
    return tuple(rows)


def _table(name: str, caption: str, columns: tuple[Column, ...], *lines: tuple[str, PreTraining | None, str]) -> Table:
    return Table(name, caption, columns, _rows(columns, lines))


def _base(**changes: int | str | float | bool) -> PreTraining:
    return PreTraining("albert-base", **changes)  # type: ignore[arg-type]


_XXL_1M = PreTraining("albert-xxlarge", steps=1_000_000, additional_data=True)
_XXL_1_5M = PreTraining("albert-xxlarge", steps=1_500_000, additional_data=True)

TABLES = {
    table.name: table
    for table in (
        _table(
            "2",
            "Table 2: models of all sizes, pre-trained for 125,000 steps",
            (_PARAMETERS, *DOWNSTREAM, _SPEED),
            ("BERT base", PreTraining("bert-base"), "108 90.4/83.2 80.4/77.6 84.5 92.8 68.2 82.3 4.7"),
            ("BERT large", PreTraining("bert-large"), "334 92.2/85.5 85.0/82.2 86.6 93.0 73.9 85.2 1.0"),
            ("ALBERT base", PreTraining("albert-base"), "12 89.3/82.3 80.0/77.1 81.6 90.3 64.0 80.1 5.6"),
            ("ALBERT large", PreTraining("albert-large"), "18 90.6/83.9 82.3/79.4 83.5 91.7 68.5 82.4 1.7"),
            ("ALBERT xlarge", PreTraining("albert-xlarge"), "60 92.5/86.1 86.1/83.1 86.4 92.4 74.8 85.5 0.6"),
            ("ALBERT xxlarge", PreTraining("albert-xxlarge"), "235 94.1/88.3 88.1/85.1 88.0 95.2 82.3 88.7 0.3"),
        ),
        _table(
            "3",
            "Table 3: the size of the vocabulary's embedding, ALBERT base",
            (_PARAMETERS, *DOWNSTREAM),
            *(
                (f"{name}, E={size}", _base(parameter_sharing=sharing, embedding_size=size), cells)
                for name, sharing, size, cells in (
                    ("not shared", "none", 64, "87 89.9/82.9 80.1/77.8 82.9 91.5 66.7 81.3"),
                    ("not shared", "none", 128, "89 89.9/82.8 80.3/77.3 83.7 91.5 67.9 81.7"),
                    ("not shared", "none", 256, "93 90.2/83.2 80.3/77.4 84.1 91.9 67.3 81.8"),
                    ("not shared", "none", 768, "108 90.4/83.2 80.4/77.6 84.5 92.8 68.2 82.3"),
                    ("all shared", "all", 64, "10 88.7/81.4 77.5/74.8 80.8 89.4 63.5 79.0"),
                    ("all shared", "all", 128, "12 89.3/82.3 80.0/77.1 81.6 90.3 64.0 80.1"),
                    ("all shared", "all", 256, "16 88.8/81.5 79.1/76.3 81.5 90.3 63.4 79.6"),
                    ("all shared", "all", 768, "31 88.6/81.5 79.2/76.6 82.0 90.6 63.3 79.8"),
                )
            ),
        ),
        _table(
            "4",
            "Table 4: what the layers share, ALBERT base",
            (_PARAMETERS, *DOWNSTREAM),
            *(
                (f"E={size}, {name}", _base(parameter_sharing=sharing, embedding_size=size), cells)
                for size, name, sharing, cells in (
                    (768, "all shared", "all", "31 88.6/81.5 79.2/76.6 82.0 90.6 63.3 79.8"),
                    (768, "attention shared", "attention", "83 89.9/82.7 80.0/77.2 84.0 91.4 67.7 81.6"),
                    (768, "FFN shared", "ffn", "57 89.2/82.1 78.2/75.4 81.5 90.8 62.6 79.5"),
                    (768, "not shared", "none", "108 90.4/83.2 80.4/77.6 84.5 92.8 68.2 82.3"),
                    (128, "all shared", "all", "12 89.3/82.3 80.0/77.1 82.0 90.3 64.0 80.1"),
                    (128, "attention shared", "attention", "64 89.9/82.8 80.7/77.9 83.4 91.9 67.6 81.7"),
                    (128, "FFN shared", "ffn", "38 88.9/81.6 78.6/75.6 82.3 91.7 64.4 80.2"),
                    (128, "not shared", "none", "89 89.9/82.8 80.3/77.3 83.2 91.5 67.9 81.6"),
                )
            ),
        ),
        _table(
            "5",
            "Table 5: the sentence loss, ALBERT base; accuracy in its own tasks on held-out text, and downstream",
            (*_INTRINSIC, *DOWNSTREAM),
            ("none", _base(objective="mlm"), "54.9 52.4 53.3 88.6/81.5 78.1/75.3 81.5 89.9 61.7 79.0"),
            ("NSP", _base(objective="nsp"), "54.5 90.5 52.0 88.4/81.5 77.2/74.6 81.6 91.1 62.3 79.2"),
            ("SOP", _base(objective="sop"), "54.0 78.9 86.5 89.3/82.3 80.0/77.1 82.0 90.3 64.0 80.1"),
        ),
        _table(
            "6",
            "Table 6: equal time instead of equal steps",
            (Column("steps", "Steps"), Column("hours", "Hours"), *DOWNSTREAM),
            (
                "BERT large",
                PreTraining("bert-large", steps=400_000),
                "400000 34 93.5/87.4 86.9/84.3 87.8 94.6 77.3 87.2",
            ),
            (
                "ALBERT xxlarge",
                PreTraining("albert-xxlarge"),
                "125000 32 94.0/88.1 88.3/85.3 87.8 95.4 82.5 88.7",
            ),
        ),
        _table(
            "7",
            "Table 7: more data, ALBERT base (Figure 2a)",
            DOWNSTREAM,
            ("without additional data", _base(), "89.3/82.3 80.0/77.1 81.6 90.3 64.0 80.1"),
            ("with additional data", _base(additional_data=True), "88.8/81.7 79.1/76.3 82.4 92.8 66.0 80.8"),
        ),
        _table(
            "8",
            "Table 8: dropout, ALBERT xxlarge after about a million steps (Figure 2b)",
            DOWNSTREAM,
            (
                "with dropout",
                PreTraining("albert-xxlarge", steps=1_000_000, additional_data=True, dropout=0.1),
                "94.7/89.2 89.6/86.9 90.0 96.3 85.7 90.4",
            ),
            ("without dropout", _XXL_1M, "94.8/89.5 89.9/87.2 90.4 96.5 86.1 90.7"),
        ),
        _table(
            "9",
            "Table 9: GLUE; single models on dev (median of five seeds), the ensemble on test",
            (*GLUE, Column("wnli", "WNLI", "wnli", metrics=("accuracy",)), Column("glue_score", "Avg (leaderboard)")),
            ("BERT-large, single", None, "86.6 92.3 91.3 70.4 93.2 88.0 60.6 90.0 - -"),
            ("XLNet-large, single", None, "89.8 93.9 91.8 83.8 95.6 89.2 63.6 91.8 - -"),
            ("RoBERTa-large, single", None, "90.2 94.7 92.2 86.6 96.4 90.9 68.0 92.4 - -"),
            ("ALBERT (1M), single", _XXL_1M, "90.4 95.2 92.0 88.1 96.8 90.2 68.7 92.7 - -"),
            ("ALBERT (1.5M), single", _XXL_1_5M, "90.8 95.3 92.2 89.2 96.9 90.9 71.4 93.0 - -"),
            ("RoBERTa, ensemble", None, "90.8 98.9 90.2 88.2 96.7 92.3 67.8 92.2 89.0 88.5"),
            ("ALBERT, ensemble", _XXL_1_5M, "91.3 99.2 90.5 89.2 97.1 93.4 69.1 92.5 91.8 89.4"),
        ),
        _table(
            "10",
            "Table 10: SQuAD and RACE, single models and ensembles",
            _STATE_OF_THE_ART,
            ("BERT-large, single", None, "90.9/84.1 81.8/79.0 72.0 76.6/70.1"),
            ("XLNet, single", None, "94.5/89.0 88.8/86.1 81.8 85.5/80.2"),
            ("RoBERTa, single", None, "94.6/88.9 89.4/86.5 83.2 86.5/81.3"),
            ("ALBERT (1M), single", _XXL_1M, "94.8/89.2 89.9/87.2 86.0 88.2/85.1"),
            ("ALBERT (1.5M), single", _XXL_1_5M, "94.8/89.3 90.2/87.4 86.5 89.0/85.5"),
            ("ALBERT, ensemble", _XXL_1_5M, "95.5/90.1 91.4/88.9 89.4 91.2/88.6"),
        ),
    )
}


@dataclass(frozen=True)
class Panel:
    """One panel of Figure 2: held-out MLM accuracy over the steps, a curve for each row."""

    name: str
    caption: str
    rows: tuple[TableRow, ...]


FIGURE_2 = (
    Panel("figure2a", "Figure 2a: the effect of additional data on MLM accuracy", TABLES["7"].rows),
    Panel("figure2b", "Figure 2b: the effect of dropout on MLM accuracy", TABLES["8"].rows),
)
"""The two panels. The paper prints the curves without numbers, so only measured curves are drawn."""


def find_table(name: str) -> Table:
    """The table called `name`. Raises UserError for an unknown name."""
    if name not in TABLES:
        raise UserError(f"table {name!r} is not known; choose one of {', '.join(TABLES)}")
    return TABLES[name]
