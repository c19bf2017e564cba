"""A real S3 server on loopback, moto's, behind a proxy that refuses, delays or cuts what a test says."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[[str, str], int | float | None]
"""Of method and path: a status to answer in place of the server's, seconds to wait as a float, or None."""


class ObjectStore:
    """The server and its proxy.

    Attributes:
        environment: the variables with which programs use it.
        fault: what goes wrong.
        requests: method and path of each request so far.
    """

    def __init__(self, port: int, proxy_port: int) -> None:
        import boto3

        self._server = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy_port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.fault: Fault = lambda method, path: None
        self.requests: list[tuple[str, str]] = []
        self.client = boto3.client(
            "s3",
            endpoint_url=self._server,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )
        self._buckets = 0

    def make_bucket(self) -> str:
        """Makes a new bucket and returns its name."""
        self._buckets += 1
        self.client.create_bucket(Bucket=f"bucket-{self._buckets}")
        return f"bucket-{self._buckets}"

    def put(self, bucket: str, name: str, content: bytes) -> None:
        """Writes an object."""
        self.client.put_object(Bucket=bucket, Key=name, Body=content)

    def objects(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        """All objects whose names begin with `prefix`."""
        found = [name for name in self.names(bucket) if name.startswith(prefix)]
        return {name: self.client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in found}

    def names(self, bucket: str) -> set[str]:
        """The names of all objects."""
        return {one["Key"] for one in self.client.list_objects_v2(Bucket=bucket).get("Contents", ())}

    @contextlib.contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """In the block, requests go wrong as `fault` says."""
        self.fault = fault
        try:
            yield
        finally:
            self.fault = lambda method, path: None


@contextlib.contextmanager
def run_store() -> Iterator[ObjectStore]:
    """Runs the server and the proxy in the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet: Mapping[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=os.environ, **quiet) as server:
        try:
            ends = time.monotonic() + 60
            while True:
                assert server.poll() is None, "the S3 server has ended"
                assert time.monotonic() < ends, "the S3 server does not start"
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            with ThreadingHTTPServer(("127.0.0.1", 0), _Proxy) as proxy:
                proxy.daemon_threads = True
                _Proxy.target, _Proxy.store = port, ObjectStore(port, proxy.server_address[1])
                threading.Thread(target=proxy.serve_forever, daemon=True).start()
                yield _Proxy.store
                proxy.shutdown()
        finally:
            server.kill()


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target: int
    store: ObjectStore

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        assert self.command is not None
        self.store.requests.append((self.command, self.path))
        wrong = self.store.fault(self.command, self.path)
        if isinstance(wrong, float):
            time.sleep(wrong)
        elif wrong is not None:
            self.send_response(wrong)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        server = http.client.HTTPConnection("127.0.0.1", self.target)
        server.request(self.command, self.path, body, dict(self.headers))
        answer = server.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)
        server.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
