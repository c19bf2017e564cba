"""The mirror of a run in object storage: uploads the run while it trains, and restores it into an empty directory.

    mirror-claim.json       the run that the objects are of, and the start of it that uploads
    mirror-files.json       hashes of the records: what each object is, or what it was before its upload
    checkpoints/step-.../   as in the run's directory; the manifest is the last object of a checkpoint
    everything else         as in the run's directory

A thread of rank 0 compares the directory with the store and uploads what differs. So a store that is slow or fails
costs no memory and no step: what has been deleted meanwhile is never uploaded. The order keeps what the store holds
resumable at any moment: records, then the files of the newest checkpoint, then its manifest, then older checkpoints,
the export and the mark of the end. What retention has deleted is removed last, each manifest before its files.

The directory of a run is shared by its hosts, so rank 0 uploads the files of all ranks.
"""

import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from common.errors import UserError
from common.files import atomic, owned
from common.files.checksums import file_checksum
from common.files.json_files import check_as, parse_object, read_as
from common.files.storage import Remote, Store
from data_prep.text.vocabulary import VOCABULARY_FILES
from pipeline.checkpoint import retention, run_directory
from pipeline.checkpoint.manifest import MANIFEST, CheckpointManifest, DamagedCheckpoint
from pipeline.checkpoint.run_records import SETTINGS

MIRROR = "mirror.json"
"""In the run's directory: the identity of the run in its mirror."""
CLAIM = "mirror-claim.json"
HASHES = "mirror-files.json"
CHECKPOINTS = "checkpoints"
DONE = "done"
POLL_SECONDS = 30.0
"""How often records are uploaded when there is no new checkpoint."""
RETRY_SECONDS = 10.0
"""From a failed upload to the next trial."""
END_SECONDS = 1200.0
"""How long a run that has ended waits for its last uploads. Less than `progress.LONG_SECONDS`."""
_RECORDS = (
    *(SETTINGS, "config.yaml", *VOCABULARY_FILES, "metrics.jsonl", "trackers.json"),
    *("tensorboard", "results.json", "logits", "submission"),
)
_LAST = ("export", DONE)
_REMEDY = "choose another --mirror"


@dataclass(frozen=True)
class _Claim:
    """The content of CLAIM: the run, the start of it that uploads, its host and process. MIRROR has the run alone."""

    run: str
    start: str = ""
    process: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def restore(output: Path, url: str | None, rank: int) -> None:
    """Brings the run that the mirror `url` holds into `output`, if no run is there yet. Every rank calls it.

    Rank 0 copies; settings.json is the last file. The other ranks wait for it. A run that is done is uploaded, as far
    as the store lacks it.

    Raises:
        UserError: the store refuses; the mirror holds another run, or later steps than the run in `output`; or no
            checkpoint of it is whole.
    """
    if url is None:
        return
    store = Store(url)
    claim = _read_claim(store)
    held = store.list() if claim is not None else {}
    if (output / SETTINGS).exists():
        if rank == 0:
            _check_same_run(store, claim, output, held)
            if (output / DONE).exists():
                Mirror(output, url).sync()
    elif SETTINGS in held and claim is not None:
        if rank == 0:
            _bring(store, held, output, claim)
        while not (output / SETTINGS).exists():
            time.sleep(0.2)


def _check_same_run(store: Store, claim: _Claim | None, output: Path, held: Mapping[str, Remote]) -> None:
    """Raises UserError if the mirror may not be overwritten by the run in `output`."""
    if claim is None:
        return
    if claim.run != _identity_of(output):
        raise UserError(f"--mirror {store.url} holds another run than {output}; {_REMEDY}")
    newest = retention.find_latest(output / CHECKPOINTS)
    step = -1 if newest is None else retention.step_of(newest)
    later = max((retention.step_of(tag) for tag in _tags(held)), default=-1)
    if later > step:
        raise UserError(
            f"--mirror {store.url} holds step {later} of the run, and {output} step {max(step, 0)}; give an empty "
            "--output to go on from the mirror, or choose another --mirror"
        )


def _bring(store: Store, held: Mapping[str, Remote], output: Path, claim: _Claim) -> None:
    """Copies the run into `output`, where a start that was killed may have begun to. settings.json comes last."""
    if _identity_of(output) != claim.run:  # otherwise a start that was killed has begun
        run_directory.check_output(output)
        output.mkdir(parents=True, exist_ok=True)
        atomic.write_text(output / MIRROR, _Claim(claim.run).to_json())
    print(f"restoring the run in {store.url} to {output}", flush=True)
    hashes = _read_hashes(store)
    damaged, whole = [], False
    for tag in sorted(_tags(held), key=retention.step_of, reverse=True):
        try:
            _bring_checkpoint(store, tag.name, output / CHECKPOINTS / tag.name)
            whole = True
        except DamagedCheckpoint as error:
            damaged.append(f"{tag.name} ({error})")
    if damaged and not whole:
        raise UserError(f"--mirror {store.url} holds no whole checkpoint: {', '.join(damaged)}; {_REMEDY}")
    for fault in damaged:
        print(f"{store.url}/{CHECKPOINTS}/{fault} is damaged and left out", file=sys.stderr, flush=True)
    names = [name for name in held if name.split("/")[0] in (*_RECORDS, *_LAST)]
    for name in sorted(names, key=lambda name: (name == SETTINGS, name)):
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        store.get(name, path)
        if file_checksum(path) not in hashes.get(name, ()):
            path.unlink()
            raise UserError(f"{store.url}/{name} is not the file that {HASHES} lists; restore it, or {_REMEDY}")


def _bring_checkpoint(store: Store, name: str, tag: Path) -> None:
    """Copies one checkpoint, its manifest last. Raises DamagedCheckpoint, and leaves no manifest then."""
    tag.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / MANIFEST).write_bytes(store.read(f"{CHECKPOINTS}/{name}/{MANIFEST}") or b"")
        manifest = CheckpointManifest.read(Path(place))
        for file_name, file in manifest.files.items():
            try:
                with contextlib.suppress(DamagedCheckpoint):
                    file.check(tag / file_name, content=True)  # of a start that was killed
                    continue
                store.get(f"{CHECKPOINTS}/{name}/{file_name}", tag / file_name)
                file.check(tag / file_name, content=True)
            except UserError as error:
                raise DamagedCheckpoint(str(error)) from None
        with atomic.replacing(tag / MANIFEST) as temporary:
            shutil.copyfile(Path(place) / MANIFEST, temporary)


class Mirror:
    """Uploads one run. `begin` starts the thread, `wake` tells it of a new checkpoint, `finish` waits for the end.

    Raises:
        UserError: the store refuses, or holds another run.
    """

    def __init__(self, output: Path, url: str, say: Callable[[str], None] = print) -> None:
        self._output, self._store, self.say = output, Store(url), say
        claim = _read_claim(self._store)
        run = _identity_of(output) or uuid.uuid4().hex
        if claim is not None and claim.run != run:
            raise UserError(f"--mirror {url} holds another run than {output}; {_REMEDY}")
        self._claim = _Claim(run, uuid.uuid4().hex, f"process {os.getpid()} on host {socket.gethostname()}")
        atomic.write_text(output / MIRROR, _Claim(run).to_json())
        self._store.write(CLAIM, self._claim.to_json().encode())
        self._uploaded: dict[str, str] = {}
        """The hash of each record that this start has uploaded."""
        self._sent: set[tuple[str, str]] = set()
        """Name and hash of each checkpoint's file that this start has uploaded."""
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
            self.say(f"--mirror {self._store.url} lacks the end of the run; give the same command again to upload it")

    def _work(self) -> None:
        try:
            self._upload()
        finally:
            self._done.set()

    def _upload(self) -> None:
        has_failed = False
        while True:
            self._wake.clear()
            ends = self._ends
            try:
                self.sync()
            except _TakenOver as error:
                self.say(f"--mirror {self._store.url}: {error} uploads the run there; this one goes on without it")
                return
            except (UserError, OSError) as error:
                if not has_failed:
                    has_failed = True
                    self.say(f"--mirror: {error}; training goes on, and the upload is tried again")
                self._wake.wait(RETRY_SECONDS)
                continue
            if has_failed:
                self.say(f"--mirror {self._store.url} is up to date again")
            has_failed = False
            if ends:
                return
            self._wake.wait(POLL_SECONDS)

    def sync(self) -> None:
        """Makes the store hold what the run's directory holds.

        Raises:
            UserError: the store refuses or does not answer.
            OSError: a file was deleted meanwhile, or cannot be read.
        """
        if not (self._output / SETTINGS).exists():
            return  # nothing is trained yet, or somebody is removing the run
        if (claim := _read_claim(self._store)) is None or claim.start != self._claim.start:
            raise _TakenOver(claim.process if claim else "nobody")
        held = self._store.list()
        local = retention.tags(self._output / CHECKPOINTS)
        for tag in _tags(held):
            if local and retention.step_of(tag) > retention.step_of(local[0]):  # a person went back
                self._remove_checkpoint(tag.name, held)
        if DONE in held and not (self._output / DONE).exists():
            self._store.remove(DONE)
        self._upload_records(_RECORDS, held)
        uploaded = [self._upload_checkpoint(tag, held) for tag in local]  # the newest one first
        self._upload_records(_LAST, held)
        kept = {tag.name for tag in local}
        for tag in _tags(held):
            if any(uploaded[:1]) and tag.name not in kept:
                self._remove_checkpoint(tag.name, held)

    def _names(self, tops: Sequence[str]) -> Iterator[str]:
        """The files of these names, relative to the run's directory. The list of an export's files comes after them."""
        for top in tops:
            files = [self._output / top, *(self._output / top).rglob("*")]
            for file in sorted(files, key=lambda file: (file.name == owned.MARKER, file)):
                if file.is_file() and not file.is_symlink() and not atomic.TEMPORARY.fullmatch(file.name):
                    yield file.relative_to(self._output).as_posix()

    def _upload_records(self, tops: Sequence[str], held: Mapping[str, Remote]) -> None:
        """Uploads the records of these names that have changed. Both hashes of one are listed until it is there."""
        with tempfile.TemporaryDirectory() as place:
            changed = {}
            for number, name in enumerate(self._names(tops)):
                # metrics.jsonl and TensorBoard's files grow meanwhile.
                copy = shutil.copyfile(self._output / name, Path(place) / str(number))
                digest = file_checksum(copy)
                if name not in held or self._uploaded.get(name) != digest:
                    changed[name] = digest, copy
            if not changed:
                return
            self._write_hashes({name: digest for name, (digest, _) in changed.items()})
            for name, (digest, path) in changed.items():
                self._store.put(path, name)
                self._uploaded[name] = digest
            self._write_hashes({})

    def _write_hashes(self, coming: Mapping[str, str]) -> None:
        listed = {name: [digest] for name, digest in self._uploaded.items()}
        for name, digest in coming.items():
            listed[name] = [digest, *listed.get(name, [])]
        self._store.write(HASHES, json.dumps(listed).encode())

    def _upload_checkpoint(self, tag: Path, held: Mapping[str, Remote]) -> bool:
        """Uploads a checkpoint, unless the store holds it whole. Returns whether it does."""
        with contextlib.suppress(FileNotFoundError, DamagedCheckpoint):  # retention has deleted it meanwhile
            manifest, prefix = CheckpointManifest.read(tag), f"{CHECKPOINTS}/{tag.name}"
            text = (tag / MANIFEST).read_bytes()
            sizes = {name: held[f"{prefix}/{name}"].bytes for name in manifest.files if f"{prefix}/{name}" in held}
            there = {name for name, file in manifest.files.items() if sizes.get(name) == file.bytes}
            if f"{prefix}/{MANIFEST}" in held:
                if len(there) == len(manifest.files) and self._store.read(f"{prefix}/{MANIFEST}") == text:
                    return True
                self._store.remove(f"{prefix}/{MANIFEST}")
            for name, file in manifest.files.items():
                sent = f"{prefix}/{name}", file.xxh3_128
                # The size alone does not tell that an object without a manifest is this file.
                if name not in there or sent not in self._sent:
                    self._store.put(tag / name, sent[0])
                    self._sent.add(sent)
            self._store.write(f"{prefix}/{MANIFEST}", text)
            return True
        return False

    def _remove_checkpoint(self, name: str, held: Mapping[str, Remote]) -> None:
        prefix = f"{CHECKPOINTS}/{name}/"
        for other in sorted(
            (one for one in held if one.startswith(prefix)), key=lambda one: not one.endswith(MANIFEST)
        ):
            self._store.remove(other)


class _TakenOver(Exception):
    """Another start of the run uploads now; the message is its host and process."""


def _identity_of(output: Path) -> str | None:
    """The identity of the run in its mirror; None if it never had one."""
    path = output / MIRROR
    return read_as(path, _Claim, "restore it").run if path.exists() else None


def _read_claim(store: Store) -> _Claim | None:
    content = store.read(CLAIM)
    source = f"{store.url}/{CLAIM}"
    return None if content is None else check_as(parse_object(content, source, _REMEDY), _Claim, source, _REMEDY)


def _read_hashes(store: Store) -> dict[str, list[str]]:
    source = f"{store.url}/{HASHES}"
    content = parse_object(store.read(HASHES) or b"{}", source, _REMEDY)
    return check_as(content, dict[str, list[str]], source, _REMEDY)


def _tags(held: Mapping[str, Remote]) -> list[Path]:
    """The checkpoints in a store whose manifest is there."""
    parts = [name.split("/") for name in held]
    return [
        Path(part[1])
        for part in parts
        if len(part) == 3 and (part[0], part[2]) == (CHECKPOINTS, MANIFEST) and retention.is_tag_name(part[1])
    ]
