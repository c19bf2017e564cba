"""Copies a run to object storage while it trains (--mirror), and restores it from there.

A thread of rank 0 uploads after each complete checkpoint, every half minute, and at the end. The files of a checkpoint
come before its manifest, and old checkpoints are deleted last, so the store can be resumed from at any moment.
`fsspec.generic.rsync` has no such order, and it takes files of equal size for equal.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from common.errors import UserError, one_line
from common.files import atomic
from common.files.json_files import parse_object, read_object
from pipeline.checkpoint import retention, run_directory
from pipeline.checkpoint.checkpoint_manifest import MANIFEST
from pipeline.checkpoint.object_store import Store
from pipeline.checkpoint.run_records import SETTINGS

MIRROR = "mirror.json"
"""In the run's directory and in the store: the identity of the run."""
LAST = ("export", "done")
POLL_SECONDS = 30.0
"""How often records are uploaded when there is no new checkpoint."""
RETRY_SECONDS = 10.0
"""From a failed upload to the next trial."""
END_SECONDS = 1200.0
"""How long a run that has ended waits for its last uploads. Less than `progress.LONG_SECONDS`."""


def restore(output: Path, url: str | None, rank: int) -> None:
    """Brings the run that the mirror `url` holds into `output`, if no run is there yet. Every rank calls it.

    Rank 0 copies; settings.json is the last file. The other ranks wait for it. A run that is done is uploaded, as far
    as the store lacks it.

    Raises:
        UserError: the store refuses, or the mirror holds another run than `output`.
    """
    if url is None:
        return
    store = Store(url)
    if (output / SETTINGS).exists():
        if rank == 0 and (output / "done").exists():
            Mirror(output, url).sync()
        return
    with store.explained():
        held = store.list() if (run := _run_in(store)) is not None else {}
        if SETTINGS in held and rank == 0:
            if run != _run_of(output):  # otherwise a start that was killed has begun
                run_directory.check_output(output)
            print(f"restoring the run in {store.url} to {output}", flush=True)
            for name in sorted(held, key=lambda name: (name == SETTINGS, name != MIRROR)):
                store.get(name, output / name)
    while SETTINGS in held and not (output / SETTINGS).exists():
        time.sleep(0.2)


class Mirror:
    """Uploads one run. `begin` starts the thread, `wake` tells it of a new checkpoint, `finish` waits for the end.

    Raises:
        UserError: the store refuses, or holds another run.
    """

    def __init__(self, output: Path, url: str, say: Callable[[str], None] = print) -> None:
        self._output, self._store, self._say = output, Store(url), say
        run = _run_of(output) or uuid.uuid4().hex
        with self._store.explained():
            if _run_in(self._store) not in (None, run):
                raise UserError(f"--mirror {url} holds another run than {output}; choose another --mirror")
            atomic.write_text(output / MIRROR, json.dumps({"run": run}) + "\n")
            self._put(MIRROR)
        self._sent: dict[str, int] = {}
        """The time of each record that this start has uploaded."""
        self._wake, self._ends, self._done = threading.Event(), False, threading.Event()

    def begin(self) -> None:
        """Starts to upload."""
        # A daemon: a process whose store does not answer must be able to end.
        threading.Thread(target=self._work, name="mirror", daemon=True).start()

    def wake(self) -> None:
        """Says that there is something new. Does not wait."""
        self._wake.set()

    def finish(self, beat: Callable[[], None]) -> None:
        """Waits until the store holds all of the run, for END_SECONDS at most. Calls `beat` each second."""
        self._ends = True
        self.wake()
        deadline = time.monotonic() + END_SECONDS
        while not self._done.wait(1.0) and time.monotonic() < deadline:
            beat()
        if not self._done.is_set():
            self._say(f"--mirror {self._store.url} lacks the end of the run; give the same command again to upload it")

    def _work(self) -> None:
        has_failed = False
        while not self._done.is_set():
            self._wake.clear()
            ends = self._ends
            try:
                self.sync()
            except Exception as error:  # each store has errors of its own library; a file may be deleted meanwhile
                if not has_failed:
                    self._say(f"--mirror: {one_line(error)}; training goes on, and the upload is tried again")
                has_failed = True
                self._wake.wait(RETRY_SECONDS)
                continue
            if has_failed:
                self._say(f"--mirror {self._store.url} is up to date again")
            has_failed = False
            if ends:
                self._done.set()
            else:
                self._wake.wait(POLL_SECONDS)

    def sync(self) -> None:
        """Makes the store hold what the run's directory holds. Raises UserError, or OSError of a local file."""
        with self._store.explained():
            held = self._store.list()
            if "done" in held and not (self._output / "done").exists():  # it goes on
                self._remove("done")
            tops = {path.name for path in self._output.iterdir() if not path.name.startswith(".")}
            self._put_records(tops - {"checkpoints", "wandb", "hangs", *LAST})
            tags = retention.tags(self._output / "checkpoints")
            for tag in tags:
                names = sorted(path.relative_to(self._output).as_posix() for path in tag.iterdir())
                manifest = f"checkpoints/{tag.name}/{MANIFEST}"
                if manifest in names and manifest not in held:  # its files never change
                    for name in sorted(names, key=lambda name: name == manifest):
                        self._put(name)
            self._put_records(tops & set(LAST))
            # A copy of the run that is older than the store removes nothing.
            kept = [retention.tag_name(0), *sorted(tag.name for tag in tags)]
            for name in sorted(held, key=lambda name: not name.endswith(MANIFEST)):
                place, _, tag_name = name.rpartition("/")[0].partition("/")
                if place == "checkpoints" and tag_name not in kept and tag_name < kept[-1]:
                    self._remove(name)

    def _put_records(self, tops: set[str]) -> None:
        """Uploads the files of these names, and below them, that have changed."""
        for top in sorted(tops):
            for path in sorted([self._output / top, *(self._output / top).rglob("*")]):
                name = path.relative_to(self._output).as_posix()
                if path.is_file() and self._sent.get(name) != (time_ns := path.stat().st_mtime_ns):
                    self._put(name)
                    self._sent[name] = time_ns

    def _put(self, name: str) -> None:
        self._store.files.put_file(str(self._output / name), f"{self._store.root}/{name}")

    def _remove(self, name: str) -> None:
        self._store.files.rm_file(f"{self._store.root}/{name}")


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
