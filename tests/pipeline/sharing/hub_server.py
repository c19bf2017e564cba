"""A small stand-in of the Hugging Face hub on loopback: what `huggingface_hub` calls to make, fill and read a model.

It keeps everything in memory and every request in a list. It knows one user, "me", and one token.
"""

import base64
import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_" + "s" * 34
LARGE = (".safetensors", ".onnx", ".model")
INITIAL = {".gitattributes": b"*.safetensors filter=lfs\n"}


@dataclass
class Repository:
    """The files of each branch, and how many commits were made."""

    private: bool
    branches: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": dict(INITIAL)})
    commits: list[str] = field(default_factory=list)

    def revision(self, branch: str) -> str:
        """A hash of the branch's files, 40 hexadecimal digits."""
        files = sorted(self.branches[branch].items())
        return hashlib.sha1(repr([branch, *files]).encode()).hexdigest()


class Refused(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, message: str, code: str = "", **more: str) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.more = status, message, code, more


class HubServer(ThreadingHTTPServer):
    """Attributes: `repositories` by name, `large` files by sha256, `requests` as (method, path)."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.broken_uploads = False
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> "HubServer":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def repository(self, name: str) -> Repository:
        if name not in self.repositories:
            raise Refused(404, "Repository not found", "RepoNotFound")
        return self.repositories[name]

    def files(self, name: str, branch: str) -> dict[str, bytes]:
        branches = self.repository(name).branches
        if branch not in branches:
            raise Refused(404, f"Invalid rev id: {branch}", "RevisionNotFound")
        return branches[branch]


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def _do(self) -> None:
        path = urlsplit(self.path).path
        self.server.requests.append((self.command, path))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            content, headers = self._answer([unquote(part) for part in path.split("/")[1:]], body)
            status = 200
        except Refused as error:
            content, status = json.dumps({"error": error.message, **error.more}).encode(), error.status
            headers = {"X-Error-Message": error.message, **({"X-Error-Code": error.code} if error.code else {})}
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "X-Request-Id": "r", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_HEAD = _do

    def _answer(self, parts: list[str], body: bytes) -> tuple[bytes, dict[str, str]]:
        match (self.command, parts):
            case ("GET" | "HEAD", [owner, name, "resolve", branch, *path]):
                return self._download(f"{owner}/{name}", branch, "/".join(path))
            case ("PUT", ["upload", oid]):
                self._upload(oid, body)
                return b"", {}
        return json.dumps(self._json(parts, body)).encode(), {"Content-Type": "application/json"}

    def _json(self, parts: list[str], body: bytes) -> Any:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refused(401, "Invalid credentials in Authorization header")
        match (self.command, parts):
            case ("GET", ["api", "whoami-v2"]):
                return {"type": "user", "name": "me", "auth": {"type": "access_token"}}
            case ("POST", ["api", "repos", "create"]):
                return self._create(json.loads(body))
            case ("POST", ["api", "validate-yaml"]):
                return self._validate(json.loads(body)["content"])
            case ("GET", ["api", "models", owner, name, "revision", branch]):
                files = self.server.files(f"{owner}/{name}", branch)
                sha = self.server.repository(f"{owner}/{name}").revision(branch)
                return {"id": f"{owner}/{name}", "sha": sha, "siblings": [{"rfilename": path} for path in files]}
            case ("GET", ["api", "models", owner, name, "tree", branch, *_]):
                files = self.server.files(f"{owner}/{name}", branch)
                return [
                    {"type": "file", "path": path, "size": len(content), "oid": _git_oid(content)}
                    for path, content in files.items()
                ]
            case ("POST", ["api", "models", owner, name, "branch", branch]):
                branches = self.server.repository(f"{owner}/{name}").branches
                if branch in branches:
                    raise Refused(409, "Reference already exists")
                branches[branch] = dict(branches["main"])
                return {}
            case ("POST", ["api", "models", owner, name, "preupload", branch]):
                there = self.server.files(f"{owner}/{name}", branch)
                return {"files": [_mode(file["path"], there) for file in json.loads(body)["files"]]}
            case ("POST", [_, _, "info", "lfs", "objects", "batch"]):
                return {"transfer": "basic", "objects": [self._large(one) for one in json.loads(body)["objects"]]}
            case ("POST", ["api", "models", owner, name, "commit", branch]):
                return self._commit(f"{owner}/{name}", branch, body)
        raise Refused(404, f"no such endpoint: {self.command} {self.path}")

    def _create(self, given: dict[str, Any]) -> Any:
        owner, name = given.get("organization") or "me", given["name"]
        if owner != "me":
            raise Refused(403, f"You don't have the rights to create a model under the namespace {owner}")
        url = {"url": f"{self.server.url}/{owner}/{name}"}
        if f"{owner}/{name}" in self.server.repositories:
            raise Refused(409, "You already created this model repo", **url)
        self.server.repositories[f"{owner}/{name}"] = Repository(given.get("visibility") == "private")
        return url

    def _validate(self, card: str) -> Any:
        """The header must be YAML with a license that has a name if it is "other"."""
        header = yaml.safe_load(card.split("---\n")[1])
        if header["license"] == "other" and "license_name" not in header:
            raise Refused(400, "license_name is missing")
        return {"errors": [], "warnings": []}

    def _large(self, one: dict[str, Any]) -> dict[str, Any]:
        action = {"upload": {"href": f"{self.server.url}/upload/{one['oid']}"}}
        return one if one["oid"] in self.server.large else one | {"actions": action}

    def _upload(self, oid: str, body: bytes) -> None:
        if self.server.broken_uploads or hashlib.sha256(body).hexdigest() != oid:
            raise Refused(400, "The upload is not what its hash says")
        self.server.large[oid] = body

    def _commit(self, name: str, branch: str, body: bytes) -> Any:
        files, repository = self.server.files(name, branch), self.server.repository(name)
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            match line["key"]:
                case "header":
                    repository.commits.append(value["summary"])
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.server.large[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        sha = repository.revision(branch)
        return {"commitUrl": f"{self.server.url}/{name}/commit/{sha}", "commitOid": sha}

    def _download(self, name: str, branch: str, path: str) -> tuple[bytes, dict[str, str]]:
        repository = self.server.repository(name)
        branches = {repository.revision(one): one for one in repository.branches}
        files = self.server.files(name, branches.get(branch, branch))
        commit = {"X-Repo-Commit": repository.revision(branches.get(branch, branch))}
        if path not in files:
            raise Refused(404, f"{path} does not exist", "EntryNotFound")
        return files[path], {"ETag": f'"{hashlib.sha256(files[path]).hexdigest()}"', **commit}


def _git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _mode(path: str, there: dict[str, bytes]) -> dict[str, Any]:
    oid = {"oid": _git_oid(there[path])} if path in there and not path.endswith(LARGE) else {}
    return {"path": path, "uploadMode": "lfs" if path.endswith(LARGE) else "regular", "shouldIgnore": False, **oid}
