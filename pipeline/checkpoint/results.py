"""results.json of a fine-tuning run. The types list the keys that some command reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from common.errors import UserError
from common.files.json_files import Count, Finite, check_as, read_object
from pipeline.tasks.own_tasks import OwnRecord

RESULTS = "results.json"
_REMEDY = "restore it, or leave that run out"

Metrics = dict[str, dict[str, Finite]]  # split to metric to value


@dataclass(frozen=True, kw_only=True)
class ResultsRecord:
    """results.json of a fine-tuning run (`metrics`), or of several seeds (`seeds`, `median`)."""

    task: str
    own_task: OwnRecord | None = None
    init: str | None = None
    random_weights: bool | None = None
    metrics: Metrics | None = None
    seeds: list[Any] | None = None
    median: Metrics | None = None
    spread: dict[str, dict[str, list[Finite]]] | None = None
    steps: Count | None = None
    best_step: Count | None = None
    predicted_data: str | None = None


R = TypeVar("R", bound=ResultsRecord)


@dataclass(frozen=True, kw_only=True)
class OneRunRecord(ResultsRecord):
    """results.json of one seed, from which a summary of several seeds is made."""

    seed: Count
    best_step: Count
    metrics: Metrics
    model: dict[str, Any]
    hyperparameters: dict[str, Any]
    examples: dict[str, Count]


def read_results(path: Path, kind: type[R] = ResultsRecord) -> R:  # type: ignore[assignment]
    """The content of a results.json. Raises UserError if it cannot be read or does not fit `kind`."""
    results = check_as(read_object(path, _REMEDY), kind, path, _REMEDY, extra="ignore")
    if (results.median if results.seeds else results.metrics) is None:
        raise UserError(f"{path} lacks the key {'median' if results.seeds else 'metrics'}; {_REMEDY}")
    return results
