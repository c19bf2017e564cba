"""Copies a run to object storage while it trains (--mirror), and restores it from there.

A thread of rank 0 uploads after each complete checkpoint and at the end. The files of a checkpoint come before its
manifest, and old checkpoints are deleted last, so the store can be resumed from at any moment.
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
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.checkpoint_manifest import MANIFEST
from pipeline.checkpoint.object_store import Store
from pipeline.checkpoint.run_records import SETTINGS

MIRROR = "mirror.json"
"""In the run's directory and in the store: the identity of the run."""
LOCAL = ("wandb", "hangs")
"""What is not uploaded."""
END_SECONDS = 1200.0
"""How long a run that has ended waits for its last uploads. Less than `progress.LONG_SECONDS`."""


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
    """Uploads one run from a thread. UserError: the store refuses, or holds another run."""

    def __init__(self, output: Path, url: str, say: Callable[[str], None] = print) -> None:
        self._output, self._store, self._say = output, Store(url), say
        run = _run_of(output) or uuid.uuid4().hex
        with self._store.explained():
            if _run_in(self._store) not in (None, run):
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
            held, names = self._store.list(), self._names()
            for name in names:
                time_ns = (self._output / name).stat().st_mtime_ns
                manifest = f"{name.rpartition('/')[0]}/{MANIFEST}"
                if self._sent.get(name) != time_ns and manifest not in held:  # the files of a checkpoint never change
                    self._put(name)
                    self._sent[name] = time_ns
            # A copy of the run that is older than the store removes no checkpoint.
            newest = max((name for name in names if name.endswith(MANIFEST)), default="")
            for name in sorted(set(held) - set(names), key=lambda name: not name.endswith(MANIFEST)):
                if name == "done" or (name.startswith("checkpoints/step-") and name < newest):
                    self._store.files.rm_file(f"{self._store.root}/{name}")

    def _names(self) -> list[str]:
        """The files to upload, in their order: a manifest after the files of its checkpoint, `done` last."""
        paths = (path.relative_to(self._output) for path in self._output.rglob("*") if path.is_file())
        names = [path.as_posix() for path in paths if path.parts[0] not in LOCAL and "/." not in f"/{path.as_posix()}"]
        return sorted(names, key=lambda name: (name == "done", name.endswith(MANIFEST), name))

    def _put(self, name: str) -> None:
        self._store.files.put_file(str(self._output / name), f"{self._store.root}/{name}")


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
