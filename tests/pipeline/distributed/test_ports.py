"""pipeline/distributed/ports.py."""

import os
import socket

import pytest
from torch.distributed import TCPStore

from pipeline.distributed.ports import reserve_port
from pipeline.engine.machine.rank_discovery import become_single_rank


def test_a_reserved_port_is_given_to_nobody_else_and_the_store_listens_on_it() -> None:
    port = reserve_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, multi_tenant=True)
    assert store.add("count", 1) == 1


def test_a_single_rank_keeps_its_port_until_its_store_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")  # so that monkeypatch puts back what was there
        monkeypatch.delenv(name)
    become_single_rank()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
