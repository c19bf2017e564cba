"""Answers in chunks: with a bar, and written as they come, so that the same command goes on after an interruption."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import xxhash

from common.errors import UserError
from common.files import atomic, locks
from common.files.json_files import read_bytes
from common.progress_bar import Progress

Answer = dict[str, Any]
Answering = Callable[[list[Any]], Sequence[Answer]]
MARK = "albert-pretraining answers "
"""Begins the first line of the file, which the identity ends. Each further line is the JSON of a chunk."""
MAX_BYTES = 64 << 30


def partial_file(out: Path) -> Path:
    """The file beside `out` that holds the answers so far."""
    return out.with_name(f".{out.name}.partial")


def identity_of(model: torch.nn.Module, *options: object) -> str:
    """A digest of the weights of a model and of anything else that decides the answers, by its `repr`."""
    state = xxhash.xxh3_128()
    for option in options:
        state.update(repr(option).encode(errors="surrogatepass"))
    for name, tensor in model.state_dict().items():
        state.update(name.encode())
        state.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return str(state.hexdigest())


def answers(
    examples: Sequence[Any], answer: Answering, size: int, out: Path | None, identity: str
) -> Iterator[list[Answer]]:
    """Yields the answers to examples, `size` at a time. An example of None has {}.

    With `out`, each chunk is added to its `partial_file` first, from which a later start with the same identity reads.

    Raises UserError if another process writes `out`, or the partial file is another file.
    """
    with contextlib.ExitStack() as stack:
        found: list[list[Answer]] = []
        if out is not None:
            stack.enter_context(locks.holding(locks.beside(out), out))
            partial = partial_file(out)
            found = _read(partial, MARK + identity)
            atomic.write_text(partial, "\n".join([MARK + identity, *map(json.dumps, found), ""]))
            file = stack.enter_context(partial.open("a", encoding="utf-8"))
        progress = stack.enter_context(Progress("predict", len(examples), "rows", quiet_seconds=5.0))
        if done := sum(map(len, found)):
            progress.resume(done)
            progress.say(f"predict: {done:,} of {len(examples):,} rows are in {partial} already")
        yield from found
        for start in range(done, len(examples), size):
            chunk = examples[start : start + size]
            given = iter(answer([example for example in chunk if example is not None]))
            made = [{} if example is None else next(given) for example in chunk]
            if out is not None:
                file.write(json.dumps(made) + "\n")
                file.flush()
            progress.update(len(made))
            yield made


def _read(partial: Path, first: str) -> list[list[Answer]]:
    """The chunks of an earlier start, if its first line is `first`; of a later one nothing that a kill cut short."""
    if not os.path.lexists(partial):
        return []
    lines = read_bytes(partial, "move it away", MAX_BYTES).decode(errors="replace").split("\n")[:-1]
    if not lines or not lines[0].startswith(MARK):
        raise UserError(f"{partial} is no file of this command; move it away")
    if lines[0] != first:
        print(f"{partial} is of another model, input or options; all rows are predicted anew", flush=True)
        return []
    found: list[list[Answer]] = []
    with contextlib.suppress(ValueError):
        found.extend(json.loads(line) for line in lines[1:])
    return found
