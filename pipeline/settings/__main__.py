"""Prints docs/flags.md: `python -m pipeline.settings > docs/flags.md`, after a flag has changed."""

from typing import Any

from pipeline.settings.declare import flags_of
from pipeline.settings.finetune_flags import FinetuneFlags
from pipeline.settings.pretrain_flags import PretrainFlags

_OPENING = """# Flags

This page lists the flags of `pipeline.pretrain` and `pipeline.finetune`. It is made from
[pipeline/settings/](../pipeline/settings/pretrain_flags.py) by `python -m pipeline.settings > docs/flags.md`.

Each flag can be given in a YAML file, with the flag's name without the dashes as the key. The command line wins over
the file. Paths are those of the current directory. For example, with `examples/run.yaml`:

    deepspeed --module pipeline.pretrain --config examples/run.yaml --seed 2

A run writes all of its flags with their values to `RUN/config.yaml`. With this file as `--config` the same run is
resumed, or made again in another `--output`.
"""


def page() -> str:
    """The content of docs/flags.md."""
    parts = [_OPENING]
    for name, command in (("pretrain", PretrainFlags), ("finetune", FinetuneFlags)):
        parts += [f"## pipeline.{name}", "", tables_of(command), ""]
    return "\n".join(parts)


def tables_of(command: type[Any]) -> str:
    """The Markdown tables of the flags of a dataclass, one for each group."""
    tables: dict[str, list[str]] = {}
    for flag in flags_of(command):
        value = flag.metavar or "{" + ",".join(flag.choices) + "}"
        name = flag.name if flag.alone else f"{flag.name} {value}{'...' if flag.many else ''}"
        table = tables.setdefault(flag.group, [f"| {flag.group} | |", "|---|---|"])
        table.append(f"| `{name}` | {flag.full_help} |")
    return "\n\n".join("\n".join(table) for table in tables.values())


if __name__ == "__main__":
    print(page(), end="")
