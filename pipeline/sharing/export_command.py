"""The work of `pipeline.export`: chooses the checkpoints of a run, exports them, and pushes them to the hub."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import __version__
from common.errors import UserError, one_line
from common.files import owned
from pipeline.checkpoint import run_directory
from pipeline.checkpoint.retention import step_of
from pipeline.sharing.card import CardOptions
from pipeline.sharing.export import FILES, ExportOptions, export_each, export_one, revision_of
from pipeline.sharing.trained_run import TrainedRun, open_run

MAIN = "main"


def run(args: argparse.Namespace) -> None:
    """Exports as the parsed command line asks, and prints what was written.

    Raises:
        UserError: a mistake. Nothing is written then, unless the hub refuses what the export has made.
    """
    if args.public and args.push is None:
        raise UserError("--public says how --push makes a repository; give --push OWNER/NAME, or leave it out")
    options = ExportOptions(CardOptions(args.license, tuple(args.language)), args.onnx, args.push)
    options.check()
    owned.check_replaceable(args.out, run_directory.EXPORT_TOOL)
    _check_is_a_run(args.run)
    trained = open_run(args.run)
    tags, on_main = _chosen(trained, args)
    hub = None if args.push is None else Hub(args.push)
    if args.all:
        form = export_each(trained, tags, args.out, options)
        places = ", ".join(revision_of(tag) for tag in tags)
        print(f"wrote {args.out} {form}: {places}")
    else:
        form = export_one(trained, tags[0], args.out, options)
        print(f"wrote {args.out} {form}")
    if hub is not None:
        hub.push(tags, on_main, args)


def _check_is_a_run(run: Path) -> None:
    seeds = sorted(path.parent for path in run.glob("seed-*/settings.json"))
    if seeds and not (run / "settings.json").exists():
        raise UserError(f"--run {run} holds a run of several seeds; name one of them, such as {seeds[0]}")


def _chosen(trained: TrainedRun, args: argparse.Namespace) -> tuple[list[Path], Path | None]:
    """The checkpoints to export, and the one of them that main gets on the hub; None if main stays as it is."""
    if args.step is not None:
        return [trained.of_step(args.step)], None
    if not args.all:
        tag = trained.best() if args.best else trained.usual()
        return [tag], tag
    usual, tags = trained.usual(), trained.every()
    return tags, usual if usual in tags else tags[-1]  # a run that is training may have deleted it meanwhile


class Hub:
    """A repository of models on the Hugging Face hub, or on the server that HF_ENDPOINT names.

    The token comes from HF_TOKEN or from `hf auth login`; it is never printed or written.

    Args:
        repository: OWNER/NAME.

    Raises:
        UserError: the name is malformed, there is no token, or the server does not know it.
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
        self._token = huggingface_hub.get_token() or ""
        if not self._token:
            raise UserError("--push needs a token of the hub and there is none; set HF_TOKEN, or run `hf auth login`")
        self._api = huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, token=self._token)
        self.url = f"{self._api.endpoint}/{repository}"
        huggingface_hub.logging.set_verbosity_error()
        if not sys.stderr.isatty():
            disable_progress_bars()
        with self._reported():
            self._api.whoami()

    def push(self, tags: list[Path], on_main: Path | None, args: argparse.Namespace) -> None:
        """Pushes each exported checkpoint to its branch, and `on_main` to main as well. Raises UserError.

        A new repository is private unless --public is given. Each branch gets the files that the export made, and
        loses those of an earlier export that this one lacks. Other files stay.
        """
        names = owned.files_of(args.out, run_directory.EXPORT_TOOL)
        pushed = []
        with self._reported():
            self._api.create_repo(self.repository, private=not args.public, exist_ok=True)
            for tag in tags:
                branch = revision_of(tag)
                folder, prefix = (args.out / branch, f"{branch}/") if args.all else (args.out, "")
                for revision in [branch, MAIN] if tag == on_main else [branch]:
                    if revision != MAIN:
                        self._api.create_branch(self.repository, branch=revision, exist_ok=True)
                    self._api.upload_folder(
                        repo_id=self.repository,
                        folder_path=folder,
                        allow_patterns=[name.removeprefix(prefix) for name in names if name.startswith(prefix)],
                        delete_patterns=list(FILES),
                        revision=revision,
                        commit_message=f"Step {step_of(tag):,}",
                        commit_description=f"albert-pretraining {__version__}",
                    )
                    pushed.append(revision)
        main = "" if on_main is None else f"; {MAIN} has step {step_of(on_main)}"
        print(f"pushed to {self.url}: {', '.join(pushed)}{main}")

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
            told = f"{reason or one_line(error.server_message or error)} (status {status})"
            remedy = "check the token and the name"
        except (httpx2.HTTPError, OSError) as error:
            told, remedy = one_line(error) or type(error).__name__, "check the network and HF_ENDPOINT"
        # What the client raises for a broken upload, or for an answer that is not the hub's.
        except (RuntimeError, ValueError, KeyError) as error:
            told, remedy = one_line(error.__cause__ or error), "push again"
        else:
            return
        raise UserError(f"--push to {self.url} failed: {told}; {remedy}".replace(self._token, "***"))
