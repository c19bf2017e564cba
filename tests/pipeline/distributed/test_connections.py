"""Who has connected: a rank with the token, or somebody else."""

import socket

import pytest

from pipeline.distributed.connections import rank_of, send


@pytest.mark.parametrize(
    ("said", "rank"),
    [
        (b'{"token": "secret", "rank": 3}\n', 3),
        (b'{"token": "guess", "rank": 3}\n', None),
        ('{"token": "gehe\u00efm", "rank": 3}\n'.encode(), None),
        (b'{"rank": 3}\n', None),
        (b'{"token": "secret"}\n', None),
        (b"[]\n", None),
        (b"1\n", None),
        (b"GET / HTTP/1.1\r\n", None),
        (b"\xff\n", None),
        (b"", None),  # is silent
    ],
)
def test_only_a_rank_with_the_token_is_one(said: bytes, rank: int | None) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        assert rank_of(ours, "secret", 0.2) == rank


def test_a_rank_says_what_is_understood() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(theirs, {"token": "secret", "rank": 1})
        assert rank_of(ours, "secret", 0.2) == 1


def test_one_that_goes_at_once_is_none() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        assert rank_of(ours, "secret", 0.2) is None
