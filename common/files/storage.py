"""Object storage: URLs such as s3://bucket/runs/base in the place of files and directories, through fsspec.

Readable   the type of a flag for something to read: of a URL, it gives a local copy
fetch      copies what a URL names into this host's cache, and returns the local path
Store      the objects below one URL
"""

import contextlib
import json
import os
import re
import sys
import tempfile
import urllib.parse
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import xxhash

from common.errors import UserError, one_line
from common.files import atomic, locks, places
from common.text import quantity

CACHE = "ALBERT_CACHE"
"""The variable that names the directory of copies; without it, ~/.cache/albert-pretraining."""
EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}
"""The schemes of URLs, and the extra of this package that each needs."""
COPY_SECONDS = 24 * 3600.0
"""How long a process waits for another one of this host that makes the same copy."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*)://(.*)", re.DOTALL)

_urls: dict[str, str] = {}
"""The URL of each copy that this process has made or found."""


def is_url(text: object) -> bool:
    """Whether `text` has the form SCHEME://..."""
    return isinstance(text, str) and _URL.match(text) is not None


def url_of(path: str) -> str:
    """The URL of a copy that this process has used; any other path as it is."""
    return _urls.get(path, path)


class Store:
    """The objects below one URL.

    Attributes:
        url: without a slash at its end.
        files: fsspec's file system.
        root: the URL's path there.

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
            self.files = fsspec.filesystem(scheme, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            extra = f"install it with `pip install '.[{EXTRAS[scheme]}]'` in the checkout"
            raise UserError(f"{url} needs a package that is missing ({one_line(error)}); {extra}") from None
        self.root = str(self.files._strip_protocol(self.url))

    def list(self) -> dict[str, str]:
        """What changes whenever the content of an object changes, by its name below the URL; "" is the URL itself."""
        versions = {}
        for path, info in self.files.find(self.root, detail=True).items():
            name = str(path)[len(self.root) :].lstrip("/")
            if name and not all(map(places.is_plain_name, name.split("/"))):
                raise UserError(f"{self.url} holds {name!r:.80}, which is no file name; remove it")
            tag = next((info[key] for key in ("ETag", "etag", "LastModified", "last_modified") if key in info), "")
            versions[name] = f"{info['size']} {tag}"
        return versions

    def get(self, name: str, path: Path) -> None:
        """Copies an object to the file `path`, which is absent or complete."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path) as temporary:
            self.files.get_file(f"{self.root}/{name}".rstrip("/"), str(temporary))

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raises the errors of a store as UserError; those of local files stay."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # each store has errors of its own library
            if isinstance(error, OSError) and str(error.filename or "").startswith("/"):
                raise
            shown, fault = one_line(error) or type(error).__name__, "cannot be reached"
            if isinstance(error, FileNotFoundError):
                fault = "does not exist: there is no such bucket or object"
            elif isinstance(error, PermissionError) or "redential" in shown:
                fault = "access is denied"
            raise UserError(f"{self.url}: {fault} ({shown}); check URL, credentials and network") from None


def cache_directory() -> Path:
    """The directory of this host's copies."""
    return Path(os.path.abspath(os.environ.get(CACHE) or Path.home() / ".cache" / "albert-pretraining"))


def fetch(url: str, without: Collection[str] = ()) -> Path:
    """Copies the object or the directory that `url` names into the cache, and returns the local path.

    A copy has the versions of its objects in its name, so it is made once, by one process of this host.

    Args:
        without: names of directories, at any depth, that are not copied.
    Raises:
        UserError: there is no such object, or the store refuses.
    """
    store = Store(url)
    with store.explained():
        objects = {name: tag for name, tag in store.list().items() if not set(without) & set(name.split("/")[:-1])}
        if not objects:
            raise FileNotFoundError("nothing is there")
        short = urllib.parse.quote(store.url.partition("://")[2], safe="").replace("%2F", "+")[-150:]
        copy = cache_directory() / f"{short}+{xxhash.xxh3_64_hexdigest(json.dumps([store.url, objects]).encode())}"
        # The object of a URL keeps its name, whose ending says what it is.
        names = {name: name or store.url.rpartition("/")[2] for name in objects}
        with locks.holding(locks.beside(copy), copy, COPY_SECONDS, f"directory in the variable {CACHE}"):
            if not copy.exists():
                print(f"copying {quantity(len(objects), 'file')} from {store.url}", file=sys.stderr)
                with tempfile.TemporaryDirectory(dir=copy.parent) as temporary:
                    for name in objects:
                        store.get(name, Path(temporary) / "copy" / names[name])
                    os.rename(Path(temporary) / "copy", copy)
    result = copy / names[""] if list(objects) == [""] else copy
    _urls[str(result)] = store.url
    return result


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
            return [self.local(each) for each in value]
        return fetch(value, self._without) if is_url(value) else value


readable = Readable("tensorboard", "wandb")
"""For runs and exports: all that commands read."""
records = Readable("tensorboard", "wandb", "checkpoints", "export", "submission")
"""For runs that are compared: without their weights."""
