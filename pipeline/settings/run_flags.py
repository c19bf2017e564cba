"""The flags that pre-training and fine-tuning share."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from common.command_line import bounded, hours, natural
from model.config import ACTIVATION_CHECKPOINTING
from pipeline.settings.declare import flag

Precision = Literal["auto", "config", "fp16", "bf16", "fp32"]
"""The values of --precision, see `pipeline.engine.deepspeed_config.fit`."""

_host_seconds = bounded(float, "number of seconds", lambda s: 3 <= s <= 3600, "between 3 and 3600 seconds")
_hang_seconds = bounded(
    float, "number of seconds", lambda s: s == 0 or 1 <= s <= 86_400, "0, nor between 1 and 86400 seconds"
)


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """The flags of a training run."""

    removed: ClassVar[tuple[str, ...]] = ("mirror", "track")
    """Flags of earlier versions. Where a run has recorded them, they are left out."""

    output: Path = flag("directory of the run", metavar="RUN", group="run")
    seed: int = flag("seed of all random numbers", 0, natural, fixed=True)
    deterministic: bool = flag("the same command gives the same bits on the same hardware; slower", False, fixed=True)
    max_hours: float | None = flag(
        "end the schedule and the run within H hours, the sum over all starts", None, hours, metavar="H", fixed=True
    )

    precision: Precision = flag(
        "auto: the JSON's, or the nearest that the hardware has; config: the JSON's", "auto", group="speed and memory"
    )
    activation_checkpointing: str = flag(
        "what to recompute in the backward pass to save memory", "none", choices=ACTIVATION_CHECKPOINTING
    )

    host_timeout: float = flag(
        "end the job if a host does not answer for this long", 30.0, _host_seconds, metavar="SECONDS", group="safety"
    )
    hang_timeout: float = flag(
        "end the job if a rank makes no progress for this long, and for 10 median steps; 0: never",
        60.0,
        _hang_seconds,
        metavar="SECONDS",
    )
