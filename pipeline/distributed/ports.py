"""A TCP port for ranks that are about to start."""

import socket


def reserve_port() -> int:
    """A free TCP port that the system gives to no other process as long as this one lives.

    The socket is bound and does not listen. Linux then never chooses the port for another socket, but lets a socket
    that names the port and sets SO_REUSEADDR, as torch's store does, listen on it.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port = int(reserved.getsockname()[1])
    reserved.detach()  # stays open until the process ends
    return port
