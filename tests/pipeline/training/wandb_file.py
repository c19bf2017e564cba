"""Reads the file of an offline run of W&B: records of protobuf in LevelDB's log format."""

import json
import struct
import time

BLOCK = 32768
HEADER = 7  # of the file, and of each piece: checksum, length, type
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def read(path):
    """The records of `path`, messages of W&B."""
    from wandb.proto import wandb_internal_pb2 as messages

    content, at, whole = path.read_bytes(), HEADER, b""
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:  # padding
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        if at + HEADER + length > len(content):  # not written whole yet
            return
        whole += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (FULL, LAST):
            record = messages.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def _whole(path):
    """The records of `path` once the last one is there: W&B's own process writes it, also after finish() returned."""
    deadline = time.monotonic() + 1500
    while True:
        records = list(read(path))
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            return records
        assert time.monotonic() < deadline, f"{path} has no last record"
        time.sleep(0.05)


def run_of(directory):
    """The id, name and settings of the run, and its rows: {"step": ..., "train/loss": ...} and so on."""
    (path,) = directory.glob("*.wandb")
    started, rows = None, []
    for record in _whole(path):
        if record.WhichOneof("record_type") == "run":
            started = record.run
        elif record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    config = {item.key: json.loads(item.value_json) for item in started.config.update}
    return started.run_id, started.display_name, config, rows
