"""Pushes exports to a repository of the Hugging Face hub, or of another server that HF_ENDPOINT names.

Each checkpoint is a branch, such as step-1000. The branch main has the one that a plain export takes. Only the files
that the export made are pushed. The token comes from HF_TOKEN or from `hf auth login`; it is never printed or written.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import __version__
from common.errors import UserError, one_line
from pipeline.sharing.export import FILES

MAIN = "main"


class Hub:
    """One repository of models.

    Args:
        repository: OWNER/NAME.

    Raises:
        UserError: the name is malformed, or there is no token.
    """

    def __init__(self, repository: str) -> None:
        import huggingface_hub
        from huggingface_hub.utils import HFValidationError, disable_progress_bars, validate_repo_id

        try:
            validate_repo_id(repository)
        except HFValidationError as error:
            raise UserError(f"--push {repository}: {one_line(error)}; give OWNER/NAME") from None
        if repository.count("/") != 1:
            raise UserError(f"--push {repository} has no owner; give OWNER/NAME, such as me/albert-base")
        self.repository = repository
        self._token = huggingface_hub.get_token()
        if not self._token:
            raise UserError("--push needs a token of the hub and there is none; set HF_TOKEN, or run `hf auth login`")
        self._api = huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, token=self._token)
        huggingface_hub.logging.set_verbosity_error()
        if not sys.stderr.isatty():
            disable_progress_bars()

    @property
    def url(self) -> str:
        """Where people find the repository."""
        return f"{self._api.endpoint}/{self.repository}"

    def check(self) -> None:
        """Asks the server whether it knows the token. Raises UserError if it does not, or does not answer."""
        with self._reported():
            self._api.whoami()

    def create(self, public: bool) -> None:
        """Makes the repository unless it is there; an existing one stays as public as it is. Raises UserError."""
        with self._reported():
            self._api.create_repo(self.repository, private=not public, exist_ok=True)

    def push(self, files: Mapping[str, Path], branch: str, message: str) -> None:
        """Commits `files`, by their names in the repository, to `branch`, which is made from main if it is missing.

        Files of an earlier export that this one lacks are removed from the branch. Other files stay.

        Raises:
            UserError: the server refuses, or does not answer.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        with self._reported():
            if branch != MAIN:
                self._api.create_branch(self.repository, branch=branch, exist_ok=True)
            there = self._api.list_repo_files(self.repository, revision=branch)
            operations: list[Any] = [
                CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in files.items()
            ]
            outdated = sorted(set(there) & set(FILES) - files.keys())
            operations += [CommitOperationDelete(path_in_repo=name) for name in outdated]
            self._api.create_commit(
                self.repository,
                operations,
                commit_message=message,
                commit_description=f"albert-pretraining {__version__}",
                revision=branch,
            )

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turns what the client raises into a UserError of one line without the token."""
        import httpx2
        from huggingface_hub.errors import HfHubHTTPError

        try:
            yield
        except HfHubHTTPError as error:
            status = error.response.status_code
            reason = {401: "the token is not valid", 403: "the token may not write there"}.get(status)
            told = reason or one_line(error.server_message or error)
            raise self._failed(f"{told} (status {status})", "check the token and the name") from None
        except (httpx2.HTTPError, OSError) as error:
            raise self._failed(one_line(error) or type(error).__name__, "check the network and HF_ENDPOINT") from None
        # What the client raises for a broken upload, or for an answer that is not the hub's.
        except (RuntimeError, ValueError, KeyError) as error:
            raise self._failed(one_line(error.__cause__ or error), "push again") from None

    def _failed(self, reason: str, remedy: str) -> UserError:
        assert self._token
        return UserError(f"--push to {self.url} failed: {reason}; {remedy}".replace(self._token, "***"))
