"""Copies a run to object storage while it trains (--mirror), and restores it from there.

A thread of rank 0 uploads after each complete checkpoint and at the end. The files of a checkpoint come before its
manifest, and old checkpoints are deleted last, so the store can be resumed from at any moment.
`fsspec.generic.rsync` has no such order, and it takes files of equal size for equal.
"""

import contextlib
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from common.errors import UserError, one_line
from common.files import atomic, places
from common.files.json_files import parse_object, read_object
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.checkpoint_manifest import MANIFEST, OWN_FILES
from pipeline.settings.settings_file import SETTINGS

MIRROR = "mirror.json"
"""In the run's directory and in the store: the identity of the run."""
LOCAL = ("wandb", "hangs")
"""What is not uploaded."""
END_SECONDS = 1200.0
"""How long a run that has ended waits for its last uploads. Less than `progress.LONG_SECONDS`."""
_OF_CHECKPOINT = re.compile(rf"checkpoints/step-\d{{8,}}/(?:{OWN_FILES.pattern})")
SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "abfss")


class Store:
    """The objects below one URL, through fsspec.

    Attributes:
        url: without a slash at its end.
        files: fsspec's file system.
        root: the URL's path there.

    Raises:
        UserError: the URL is of no known store, or the store's package is not installed.
    """

    def __init__(self, url: str) -> None:
        scheme, _, place = url.partition("://")
        if scheme not in SCHEMES or not place.strip("/"):
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise UserError(f"{url}: URLs have the form SCHEME://BUCKET/NAME with one of {known}; correct it")
        self.url = url.rstrip("/")
        import fsspec  # a quarter of a second that commands without URLs need not wait

        try:
            self.files, self.root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except ImportError as error:
            remedy = "install the extra s3, gcs or azure of this project (docs/cluster.md)"
            raise UserError(f"{url} needs a package that is missing ({one_line(error)}); {remedy}") from None

    def names(self) -> set[str]:
        """The names of the objects below the URL."""
        names = {str(path)[len(self.root) :].lstrip("/") for path in self.files.find(self.root)}
        for name in names:
            if not all(map(places.is_plain_name, name.split("/"))):
                raise UserError(f"{self.url} holds {name!r:.80}, which is no file name; remove it")
        return names

    def get(self, name: str, path: Path) -> None:
        """Copies an object to the file `path`, which is absent or complete."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path) as temporary:
            self.files.get_file(f"{self.root}/{name}", str(temporary))

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


def restore(output: Path, url: str | None, rank: int) -> None:
    """Brings the run that the mirror `url` holds into `output`, if no run is there yet. Every rank calls it.

    Rank 0 copies; settings.json is the last file, for which the other ranks wait. A run that is done is uploaded, as
    far as the store lacks it. Raises UserError: the store refuses, or holds another run than `output`.
    """
    if url is None:
        return
    store = Store(url)
    if (output / SETTINGS).exists():
        if rank == 0 and (output / "done").exists():
            Mirror(output, url).sync()
        return
    with store.explained():
        held, run = store.names(), _run_in(store)
        _check_free(store, held, run)
        if SETTINGS in held and rank == 0:
            if run != _run_of(output):  # otherwise a start that was killed has begun
                run_directory.check_output(output)
            print(f"restoring the run in {store.url} to {output}", flush=True)
            for name in sorted(held, key=lambda name: (name == SETTINGS, name != MIRROR)):
                is_own = name.split("/")[0] in (SETTINGS, *run_directory.OWN_NAMES)
                if is_own or not (output / name).exists():  # a person's file stays
                    store.get(name, output / name)
            if "done" in held:
                print(
                    f"the run in {store.url} is finished, and {output} is a copy of it now; another run needs another "
                    "--mirror",
                    flush=True,
                )
    while SETTINGS in held and not (output / SETTINGS).exists():
        time.sleep(0.2)


class Mirror:
    """Uploads one run from a thread. UserError: the store refuses, or holds another run."""

    def __init__(self, output: Path, url: str, say: Callable[[str], None] = print) -> None:
        self._output, self._store, self._say = output, Store(url), say
        run = _run_of(output) or uuid.uuid4().hex
        with self._store.explained():
            held, there = self._store.names(), _run_in(self._store)
            _check_free(self._store, held, there)
            if held and there != run:
                raise UserError(f"--mirror {url} holds another run than {output}; choose another --mirror")
            atomic.write_text(output / MIRROR, json.dumps({"run": run}) + "\n")
            self._put(MIRROR)
        self._sent: dict[str, int] = {}  # the time of each file that this start has uploaded
        self._asked = self._answered = 0
        self._has_failed = False
        self._thread = threading.Thread()

    def wake(self) -> None:
        """Uploads what is new in a thread. Does not wait."""
        self._asked += 1
        if not self._thread.is_alive():
            # A daemon: a process whose store does not answer must be able to end.
            self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
            self._thread.start()

    def upload_rest(self, beat: Callable[[], None]) -> None:
        """Waits until the store holds all of the run, for END_SECONDS at most. Calls `beat` each second."""
        needed, deadline = self._asked + 1, time.monotonic() + END_SECONDS
        while self._answered < needed and time.monotonic() < deadline:
            self.wake()  # which tries a failed upload again
            self._thread.join(1.0)
            time.sleep(0.1)
            beat()
        if self._answered < needed:
            self._say(f"--mirror {self._store.url} lacks the end of the run; give the same command again to upload it")

    def _work(self) -> None:
        while self._answered < self._asked:
            asked = self._asked
            try:
                self.sync()
            except Exception as error:  # each store has errors of its own library; a file may be deleted meanwhile
                if not self._has_failed:
                    self._say(f"--mirror: {one_line(error)}; training goes on, and the upload is tried again")
                self._has_failed = True
                return
            self._answered, self._has_failed = asked, False

    def sync(self) -> None:
        """Makes the store hold what the run's directory holds. Raises UserError, or OSError of a local file."""
        with self._store.explained():
            held, names = self._store.names(), self._names()
            for name in names:
                time_ns = (self._output / name).stat().st_mtime_ns
                manifest = f"{name.rpartition('/')[0]}/{MANIFEST}"
                if self._sent.get(name) != time_ns and manifest not in held:  # the files of a checkpoint never change
                    self._put(name)
                    self._sent[name] = time_ns
            # A copy of the run that is older than the store removes no checkpoint.
            newest = max((name for name in names if name.endswith(MANIFEST)), default="")
            for name in sorted(held - set(names), key=lambda name: not name.endswith(MANIFEST)):
                if name == "done" or (_OF_CHECKPOINT.fullmatch(name) and name < newest):
                    self._store.files.rm_file(f"{self._store.root}/{name}")

    def _names(self) -> list[str]:
        """The files to upload, in their order: a manifest after the files of its checkpoint, `done` last."""
        paths = (path.relative_to(self._output) for path in self._output.rglob("*") if path.is_file())
        names = [path.as_posix() for path in paths if path.parts[0] not in LOCAL and "/." not in f"/{path.as_posix()}"]
        return sorted(names, key=lambda name: (name == "done", name.endswith(MANIFEST), name))

    def _put(self, name: str) -> None:
        self._store.files.put_file(str(self._output / name), f"{self._store.root}/{name}")


def _check_free(store: Store, held: Collection[str], run: object) -> None:
    """Raises UserError if the place holds objects and no mirror of a run: something else has put them there."""
    if held and not isinstance(run, str):
        raise UserError(
            f"--mirror {store.url} holds {min(held):.80} and no {MIRROR} of a run, so it is no mirror; choose an empty "
            "place"
        )


def _run_of(output: Path) -> object:
    """The identity of the run in its mirror; None if it never had one."""
    return read_object(output / MIRROR, "restore it").get("run") if (output / MIRROR).exists() else None


def _run_in(store: Store) -> object:
    """The identity of the run that a store holds; None if it holds none."""
    try:
        content = store.files.cat_file(f"{store.root}/{MIRROR}")
    except FileNotFoundError:
        return None
    return parse_object(content, f"{store.url}/{MIRROR}", "choose another --mirror").get("run")
