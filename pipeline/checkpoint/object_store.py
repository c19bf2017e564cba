"""The objects below one URL of object storage, through fsspec."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError, one_line
from common.files import atomic, places

EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}
"""The schemes of URLs, and the extra of this package that each needs."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*)://(.*)", re.DOTALL)


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
