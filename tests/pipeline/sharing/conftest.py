"""A stand-in of the hub's client, which keeps in memory what a push sends."""

from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

TOKEN = "hf_" + "s" * 34
INITIAL = {".gitattributes": b"*.safetensors filter=lfs\n"}


class Hub:
    """Attributes: `repositories` by name, `calls` by name in their order, and the `error` that the next call raises."""

    def __init__(self, endpoint: str | None, token: str) -> None:
        self.endpoint, self.token = endpoint, token
        self.repositories: dict[str, SimpleNamespace] = {}
        self.calls: list[str] = []
        self.errors: dict[str, Exception] = {}

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.errors:
            raise self.errors.pop(name)

    def whoami(self) -> None:
        self._called("whoami")

    def create_repo(self, repository: str, private: bool, exist_ok: bool) -> None:
        self._called("create_repo")
        made = SimpleNamespace(private=private, branches={"main": dict(INITIAL)}, commits=[])
        self.repositories.setdefault(repository, made)

    def create_branch(self, repository: str, branch: str, exist_ok: bool) -> None:
        self._called("create_branch")
        branches = self.repositories[repository].branches
        branches.setdefault(branch, dict(branches["main"]))

    def upload_folder(
        self, repo_id, folder_path, allow_patterns, delete_patterns, revision, commit_message, commit_description
    ) -> None:
        self._called("upload_folder")
        paths = {path.relative_to(folder_path).as_posix(): path for path in Path(folder_path).rglob("*")}
        sent = {name: path.read_bytes() for name, path in paths.items() if name in allow_patterns}
        branches = self.repositories[repo_id].branches
        there = branches[revision]
        kept = {name: there[name] for name in there if not any(fnmatch(name, one) for one in delete_patterns)}
        branches[revision] = kept | sent
        self.repositories[repo_id].commits.append(commit_message)


@pytest.fixture
def hub(monkeypatch):
    """The client that `pipeline.export --push` makes."""
    made = Hub("https://hub.example", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", made.endpoint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    def make(endpoint, token):
        assert (endpoint, token) == (made.endpoint, TOKEN)
        return made

    monkeypatch.setattr(huggingface_hub, "HfApi", make)
    return made
