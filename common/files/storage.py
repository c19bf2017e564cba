"""Object storage: URLs such as s3://bucket/runs/base in the place of files and directories, through fsspec.

    Readable   the type of a flag for something to read: of a URL, it gives a local copy
    fetch      copies what a URL names into this host's cache, and returns the local path
    Store      the objects below one URL: list, read, write, remove

A copy is made again where the store has another version of an object, or where the copy's content has changed. A
directory that this project wrote lists the hashes of its files: a copy that does not fit them is refused.
"""

import contextlib
import json
import os
import re
import sys
import urllib.parse
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from common.errors import UserError, one_line
from common.files import atomic, locks, owned, places
from common.files.checksums import file_checksum
from common.files.json_files import Count, check_as, read_object
from common.text import quantity

CACHE = "ALBERT_CACHE"
"""The variable that names the directory of copies; without it, ~/.cache/albert-pretraining."""
EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}
"""The schemes of URLs, and the extra of this package that each needs."""
COPY_SECONDS = 24 * 3600.0
"""How long a process waits for another one of this host that makes the same copy."""
EDITABLE = ("README.md",)
"""Files of a directory of ours that people edit: their content is not compared with the list."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*)://(.*)", re.DOTALL)

_urls: dict[str, str] = {}
"""The URL of each copy that this process has made or found."""


@dataclass(frozen=True)
class _Copied:
    """A file of a copy: the version of its object, its size in bytes and the xxh3_128 of its content."""

    version: str
    bytes: Count
    xxh3_128: str


class Remote(NamedTuple):
    """An object: its size in bytes, and what the store changes whenever its content changes."""

    bytes: int
    version: str


def is_url(text: object) -> bool:
    """Whether `text` has the form SCHEME://..."""
    return isinstance(text, str) and _URL.match(text) is not None


def url_of(path: str) -> str:
    """The URL of a copy that this process has used; any other path as it is."""
    return _urls.get(path, path)


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    """Raises the errors of a store as UserError; those of local files stay."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each store has errors of its own library
        if isinstance(error, OSError) and (error.errno in places.FULL or str(error.filename or "").startswith("/")):
            raise
        if isinstance(error, FileNotFoundError):
            raise UserError(f"{url} does not exist: there is no such bucket or object; correct the URL") from None
        if isinstance(error, PermissionError) or "redential" in str(error):
            raise UserError(
                f"{url}: access is denied ({one_line(error)}); check the credentials, and what they allow"
            ) from None
        shown = one_line(error) or type(error).__name__
        raise UserError(f"{url} cannot be reached ({shown}); check the URL, the endpoint and the network") from None


class Store:
    """The objects below one URL. Its methods raise UserError if the store refuses or does not answer.

    Attributes:
        url: without a slash at its end.

    Raises:
        UserError: the URL is of no known store, or the store's package is not installed.
    """

    def __init__(self, url: str) -> None:
        match = _URL.fullmatch(url)
        scheme = match[1].lower() if match else ""
        if match is None or scheme not in EXTRAS or not match[2].strip("/"):
            known = ", ".join(f"{name}://" for name in EXTRAS)
            raise UserError(f"{url}: URLs have the form SCHEME://BUCKET/NAME with one of {known}; correct it")
        self.url = url.rstrip("/")
        import fsspec  # a quarter of a second that commands without URLs need not wait

        try:
            self._files = fsspec.filesystem(scheme, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UserError(
                f"{url} needs a package that is missing ({one_line(error)}); "
                f"install it with `pip install 'albert-pretraining[{EXTRAS[scheme]}]'`"
            ) from None
        self._root = str(self._files._strip_protocol(self.url))

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def list(self) -> dict[str, Remote]:
        """The objects by their names below the URL, and by "" if the URL is that of an object."""
        with _explained(self.url):
            found = self._files.find(self._root, detail=True)
        remote = {}
        for place, info in found.items():
            name = str(place)[len(self._root) :].lstrip("/")
            if str(place).endswith("/") or info["type"] != "file":  # an empty object that stands for a directory
                continue
            if name and not all(map(places.is_plain_name, name.split("/"))):
                raise UserError(f"{self.url} holds {name!r:.80}, which is no file name; remove it")
            version = next((info[key] for key in ("ETag", "etag", "LastModified", "last_modified") if key in info), "")
            remote[name] = Remote(int(info["size"]), str(version))
        return remote

    def get(self, name: str, path: Path) -> None:
        """Copies an object to the file `path`, which is absent or complete."""
        with atomic.replacing(path) as temporary, _explained(f"{self.url}/{name}".rstrip("/")):
            self._files.get_file(self._place(name), str(temporary))

    def put(self, path: Path, name: str) -> None:
        """Copies a file, which nobody changes meanwhile, to an object. It is absent, the old one, or complete."""
        with _explained(f"{self.url}/{name}"):
            self._files.put_file(str(path), self._place(name))

    def read(self, name: str) -> bytes | None:
        """The content of an object; None if there is none."""
        with _explained(f"{self.url}/{name}"), contextlib.suppress(FileNotFoundError):
            return bytes(self._files.cat_file(self._place(name)))
        return None

    def write(self, name: str, content: bytes) -> None:
        """Writes an object."""
        with _explained(f"{self.url}/{name}"):
            self._files.pipe_file(self._place(name), content)

    def remove(self, name: str) -> None:
        """Removes an object, if there is one."""
        with _explained(f"{self.url}/{name}"), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._place(name))


def cache_directory() -> Path:
    """The directory of this host's copies."""
    return Path(os.path.abspath(os.environ.get(CACHE) or Path.home() / ".cache" / "albert-pretraining"))


def fetch(url: str, without: Collection[str] = ()) -> Path:
    """Copies the object or the directory that `url` names into the cache, and returns the local path.

    Only what the store has changed since the last copy is copied again. The processes of a host copy once.

    Args:
        without: names of directories, at any depth, that are not copied.
    Raises:
        UserError: there is no such object, the store refuses, or a file differs from the list that came with it.
    """
    store = Store(url)
    name = urllib.parse.quote(store.url.replace("://", "/"), safe="").replace("%2F", "+")
    if len(name) > places.MAX_NAME_BYTES - 50:
        name = f"{name[:150]}+{xxhash.xxh3_64_hexdigest(name.encode())}"
    copy = cache_directory() / name
    with locks.holding(locks.beside(copy), copy, COPY_SECONDS, f"directory in the variable {CACHE}"):
        found = {
            # The object of a URL keeps its name, whose ending says what it is.
            name or store.url.rpartition("/")[2]: (name, remote)
            for name, remote in store.list().items()
            if not _is_within(name, without)
        }
        if not found:
            raise UserError(f"{url} does not exist: there is no such bucket or object; correct the URL")
        copied = _bring(store, found, copy, without)
    local = copy / next(iter(found)) if [name for name, _ in found.values()] == [""] else copy
    _check_lists(store.url, copy, copied, without)
    _urls[str(local)] = store.url
    return local


def _bring(
    store: Store, found: Mapping[str, tuple[str, Remote]], copy: Path, without: Collection[str]
) -> dict[str, _Copied]:
    """Makes `copy` hold the objects `found`, and removes what the store has no more. Returns its record."""
    record_file = copy.with_name(f".{copy.name}.json")
    before: dict[str, _Copied] = {}
    with contextlib.suppress(UserError):
        before = check_as(read_object(record_file, ""), dict[str, _Copied], record_file, "")
    record = {name: entry for name, entry in before.items() if _is_within(name, without)}
    missing = []
    for name, (_, remote) in found.items():
        entry, path = before.get(name), copy / name
        if entry is not None and entry.version == remote.version and _is_copy(path, entry):
            record[name] = entry
        else:
            missing.append(name)
    for name in before.keys() - record.keys() - found.keys():
        (copy / name).unlink(missing_ok=True)
    if missing:
        size = sum(found[name][1].bytes for name in missing)
        print(f"copying {quantity(len(missing), 'file')} of {size:,} bytes from {store.url}", file=sys.stderr)
    for name in missing:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        object_name, remote = found[name]
        store.get(object_name, copy / name)
        record[name] = _Copied(remote.version, (copy / name).stat().st_size, file_checksum(copy / name))
        if record[name].bytes != remote.bytes:
            raise UserError(
                f"{store.url}/{object_name} has {remote.bytes:,} bytes, and {record[name].bytes:,} came; try again"
            )
        # After each file: a large copy that is interrupted goes on where it was.
        atomic.write_text(record_file, json.dumps({name: asdict(entry) for name, entry in record.items()}) + "\n")
    return record


def _is_copy(path: Path, entry: _Copied) -> bool:
    return path.is_file() and path.stat().st_size == entry.bytes and file_checksum(path) == entry.xxh3_128


def _check_lists(url: str, directory: Path, copied: Mapping[str, _Copied], without: Collection[str]) -> None:
    """Raises UserError if a list of our files that was copied names one that is missing, or has another content."""
    for marker in (name for name in copied if name.rpartition("/")[2] == owned.MARKER):
        place = marker.rpartition("/")[0]
        for name, digest in owned.listed(directory / place).items():
            found = copied.get(f"{place}/{name}".lstrip("/"))
            if name in EDITABLE or (found is None and _is_within(name, without)):
                continue
            if found is None or found.xxh3_128 != digest:
                problem = "is missing" if found is None else "is not the file"
                raise UserError(
                    f"{url}/{place}".rstrip("/") + f": {name} {problem} that {owned.MARKER} lists; upload it again"
                )


def _is_within(name: str, directories: Collection[str]) -> bool:
    """Whether a file lies below a directory with one of these names."""
    return bool(set(directories).intersection(name.split("/")[:-1]))


class Readable:
    """The type of a flag that names something to read: a path, or a URL of which a local copy is made.

    `common.command_line.Parser` calls `local` once the whole line was read without a mistake.

    Args:
        without: see `fetch`.
    """

    def __init__(self, *without: str) -> None:
        self._without = without

    def __call__(self, text: str) -> Path | str:
        """A path as such; a URL as it is."""
        return text if is_url(text) else Path(text)

    def local(self, value: Any) -> Any:
        """The local path of each URL in the value of the flag; what is none stays."""
        if isinstance(value, list):
            return [self.local(one) for one in value]
        return fetch(value, self._without) if is_url(value) else value


readable = Readable("tensorboard", "wandb")
"""For runs and exports: all that commands read."""
records = Readable("tensorboard", "wandb", "checkpoints", "export", "submission")
"""For runs that are compared: without their weights."""
