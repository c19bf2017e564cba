"""What is done to a valid file: each function changes the file in place, with the numbers of a seeded generator."""

import bz2
import gzip
import json
import os
import random
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from common.files.checksums import content_checksum, file_checksum

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 0.5, -1.0, 1e308, float("nan"), float("inf")),
    *("", "x", "../victim", "/etc/passwd", "a\nb", "é" * 200, "\0", "n" * 5000),
    *([], {}, [[]], [None], {"a": 1}, [1, 2, 3], ["a", "b"]),
)


def replace_value(path: Path, rng: random.Random) -> None:
    """Another value at a random place of a JSON file."""
    _edit_json(path, rng, lambda container, key: container.__setitem__(key, rng.choice(VALUES)))


def drop_value(path: Path, rng: random.Random) -> None:
    """A JSON file without one of its keys or entries."""
    _edit_json(path, rng, lambda container, key: container.__delitem__(key))


def retype_value(path: Path, rng: random.Random) -> None:
    """A number as a string, a string as a list, an object as a list of its values, and so on."""

    def retype(container: Any, key: Any) -> None:
        value = container[key]
        if isinstance(value, dict):
            container[key] = list(value.values())
        elif isinstance(value, list):
            container[key] = dict(zip(map(str, value), value))
        else:
            container[key] = [value] if isinstance(value, str) else str(value)

    _edit_json(path, rng, retype)


def resize_number(path: Path, rng: random.Random) -> None:
    """A number that is a bit or much larger or smaller."""

    def resize(container: Any, key: Any) -> None:
        value = container[key]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            container[key] = rng.choice((value + 1, value - 1, value * 1000, -value, value * 10**9))

    for _ in range(5):
        _edit_json(path, rng, resize)


def extend(path: Path, rng: random.Random) -> None:
    """A JSON object or list with one entry more, or an entry twice."""

    def add(container: Any, key: Any) -> None:
        if isinstance(container, list):
            container.append(container[key])
        else:
            container[f"{key} too"] = container[key]

    _edit_json(path, rng, add)


def other_json(path: Path, rng: random.Random) -> None:
    """JSON that is no object; brackets deeper than any parser's stack; more digits than Python converts."""
    bracket, many = rng.choice(("[", '{"a":')), rng.choice((150, 4301, 100_000))
    number = '{"format_version": ' + "9" * many + "}"
    path.write_text(rng.choice((json.dumps(rng.choice(VALUES)), bracket * many, number)))


def truncate(path: Path, rng: random.Random) -> None:
    """A file that was cut short."""
    size = path.stat().st_size
    os.truncate(path, rng.choice((0, size // 2, max(0, size - 1), rng.randrange(size + 1))))


def flip(path: Path, rng: random.Random) -> None:
    """Some bytes that have changed."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 8, 100)) if content else 0):
        content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content)


def overwrite(path: Path, rng: random.Random) -> None:
    """Bytes that say "very large" in any byte order, at a random place: counts, offsets and shapes that lie."""
    content = bytearray(path.read_bytes())
    word = rng.choice((b"\xff" * 8, b"\xff" * 4, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"\xff" * 7 + b"\x7f"))
    if len(content) > 8:
        place = rng.randrange(len(content) - 8)
        content[place : place + len(word)] = word
    path.write_bytes(content)


def append(path: Path, rng: random.Random) -> None:
    """A file with something behind its end."""
    content = rng.choice((b"\n", b"{}", b"\0" * 100, b"\xff\xfe", rng.randbytes(50)))
    path.write_bytes(path.read_bytes() + content)


def garble(path: Path, rng: random.Random) -> None:
    """Something else of the same size."""
    path.write_bytes(rng.randbytes(path.stat().st_size))


def swap(path: Path, rng: random.Random) -> None:
    """The content of another file of the same directory."""
    others = [other for other in path.parent.iterdir() if other.is_file() and other != path]
    if others:
        path.write_bytes(rng.choice(sorted(others)).read_bytes())


def fifo(path: Path, rng: random.Random) -> None:
    """A FIFO that nobody writes to."""
    path.unlink()
    os.mkfifo(path)


def directory(path: Path, rng: random.Random) -> None:
    """A directory with a file."""
    path.unlink()
    path.mkdir()
    (path / "file").write_text("of a person")


def link(path: Path, rng: random.Random) -> None:
    """A symbolic link to nothing, to itself, to a device, or to the file in another place."""
    aside = path.with_name(f".{path.name}.aside")
    path.rename(aside)
    path.symlink_to(rng.choice((Path("/nowhere"), path, Path("/dev/zero"), aside)))


def missing(path: Path, rng: random.Random) -> None:
    """No file."""
    path.unlink()


def repeat_key(path: Path, rng: random.Random) -> None:
    """A JSON object that has a key twice."""
    text = path.read_text()
    places = [place for place, sign in enumerate(text) if sign == "{"]
    if not places:
        return
    place = rng.choice(places)
    found = re.match(r'\s*("[^"]*"\s*:)', text[place + 1 :])
    if found is not None:
        path.write_text(f"{text[: place + 1]}{found[1]} 1, {text[place + 1 :]}")


def combine_marks(path: Path, rng: random.Random) -> None:
    """A million combining marks after one letter, in an order that is slow to normalise."""
    marks = "a" + rng.choice(("\u0301\u0323", "\u0301", "\u0345\u0300\u0327")) * rng.choice((1000, 500_000))
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        if "text" not in table.column_names:
            return
        texts = table.column("text").to_pylist()
        texts[rng.randrange(len(texts))] = f"It is {marks} text."
        place = table.schema.get_field_index("text")
        parquet.write_table(table.set_column(place, table.schema.field(place), pyarrow.array(texts)), path)
    elif path.suffix in JSON_SUFFIXES:
        _edit_json(path, rng, lambda container, key: container.__setitem__(key, marks))
    else:
        with path.open("ab") as file:
            file.write(f"\n{marks}\n".encode())


def socket(path: Path, rng: random.Random) -> None:
    """A socket that nobody listens on."""
    path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)


def bomb(path: Path, rng: random.Random) -> None:
    """400 MB of newlines in a compressed file of some hundred KB beside the file, or a file of 100 GB of zeros."""
    compress, ending = rng.choice(((gzip.compress, ".gz"), (bz2.compress, ".bz2"), (None, "")))
    if compress is None:
        os.truncate(path, 100 << 30)
    else:
        path.with_name(path.name + ending).write_bytes(compress(b"\n" * (1 << 20)) * 400)


def repeat_column(path: Path, rng: random.Random) -> None:
    """A table with a column twice, or with 100,000 columns more."""
    more = 1 if rng.random() < 0.5 else 100_000
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        name = rng.choice(table.column_names)
        for number in range(min(more, 1000)):
            table = table.append_column(name if more == 1 else f"more{number}", table.column(name))
        parquet.write_table(table, path)
        return
    sign = "\t" if path.suffix == ".tsv" else ","
    header, *rows = path.read_text().splitlines()
    names = header.split(sign)
    added = [rng.choice(names)] if more == 1 else [f"more{number}" for number in range(more)]
    lines = [sign.join([header, *added]), *(sign.join([row, *["x"] * more]) for row in rows[:20])]
    path.write_text("\n".join(lines) + "\n")


JSON_MUTATIONS: tuple[Callable[[Path, random.Random], None], ...] = (
    *(replace_value, replace_value, replace_value, drop_value, drop_value, retype_value, resize_number, extend),
    *(other_json, other_json, other_json, repeat_key),
)
FILE_MUTATIONS: tuple[Callable[[Path, random.Random], None], ...] = (
    *(truncate, flip, flip, overwrite, overwrite, append, garble, swap, fifo, socket, directory, link, missing),
)
TABLE_MUTATIONS = (combine_marks, repeat_column, bomb)
JSON_SUFFIXES = (".json", ".jsonl")
TEXT_SUFFIXES = (".jsonl", ".txt", ".tsv", ".csv")


def mutate(path: Path, rng: random.Random, wanted: str = "") -> str:
    """Changes the file `path`, and returns the name of what was done: one of the functions above, or `wanted`.

    Half of the changed files are entered into the manifest beside them, with their new size and hash, and half of the
    changed manifests get the hash of their content: a checksum protects against accidents only.
    """
    of_json = path.suffix in JSON_SUFFIXES and rng.random() < 0.7
    mutation = rng.choice(JSON_MUTATIONS if of_json else FILE_MUTATIONS)
    if not of_json and rng.random() < 0.2 and path.suffix in (*TEXT_SUFFIXES, ".parquet"):
        mutation = rng.choice(TABLE_MUTATIONS)
    if wanted:
        known = {*JSON_MUTATIONS, *FILE_MUTATIONS, *TABLE_MUTATIONS}
        (mutation,) = (one for one in known if one.__name__ == wanted)
    try:
        mutation(path, rng)
    except (ValueError, pyarrow.ArrowException):  # it needs a text file, or a Parquet file
        mutation = flip
        flip(path, rng)
    if rng.random() < 0.5 and not path.is_symlink() and path.is_file():
        return f"{mutation.__name__}{' and sealed' if seal(path) else ''}"
    return mutation.__name__


def seal(path: Path) -> bool:
    """Makes hashes right again: of a manifest, or of the file `path` in its manifest. False where there is none."""
    try:
        if path.name in ("manifest.json", "documents.json"):
            content = json.loads(path.read_text())
        else:
            (path, entry) = next(
                (manifest, entry)
                for manifest in (path.with_name("manifest.json"), path.with_name("documents.json"))
                if manifest.exists()
                for entry in _entries(json.loads(manifest.read_text()), path.name)
            )
            content = json.loads(path.read_text())
            for again in _entries(content, entry[0]):
                file = path.with_name(entry[0])
                again[1].update(bytes=file.stat().st_size, xxh3_128=file_checksum(file))
        if "content" in content:
            content["xxh3_128"] = content_checksum(content["content"])
        else:
            content["xxh3_128"] = content_checksum({k: v for k, v in content.items() if k != "xxh3_128"})
        path.write_text(json.dumps(content))
    except (StopIteration, ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
        return False
    return True


def _entries(content: dict[str, Any], name: str) -> list[tuple[str, dict[str, Any]]]:
    """The entry of a file in the content of a manifest of shards, documents or a checkpoint."""
    files = content["content"]["files"] if "content" in content else content["files"]
    if isinstance(files, dict):
        return [(name, files[name])] if name in files else []
    return [(name, entry) for entry in files if entry["name"] == name]


def _edit_json(path: Path, rng: random.Random, edit: Callable[[Any, Any], None]) -> None:
    """Applies `edit` to a random place of a JSON file, or of a random line of a file of JSON lines."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = rng.randrange(len(lines)) if lines else 0
    try:
        content = json.loads(lines[number])
    except (ValueError, IndexError):
        return
    places = list(_places(content))
    if places:
        edit(*rng.choice(places))
    lines[number] = json.dumps(content)
    path.write_text("\n".join(lines) + "\n")


def _places(content: Any) -> Any:
    keys = content.keys() if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    for key in keys:
        yield content, key
        yield from _places(content[key])
