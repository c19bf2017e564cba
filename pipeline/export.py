"""Writes the model of a run as a directory that `transformers` opens.

    python -m pipeline.export --run runs/base --out albert-base

The newest complete checkpoint is taken; one process is enough, whatever number of ranks wrote it.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep import atomic
from data_prep.command_line import Parser
from data_prep.errors import UserError
from model import AlbertConfig, AlbertForPreTraining, checkpoint, huggingface
from pipeline import checkpoints, runs


def load_model(run: Path) -> AlbertForPreTraining:
    """The model of a run's newest complete checkpoint, fp32, in evaluation mode.

    Raises:
        UserError: `run` holds no run, or no checkpoint yet.
    """
    config = AlbertConfig.from_dict(runs.read_settings(run)["model"])
    model = AlbertForPreTraining(config)
    model.load_state_dict(checkpoints.load_weights(run / "checkpoints"))
    return model.eval()


def export_run(run: Path, out: Path) -> str:
    """Writes the model of `run` to `out`, which is never seen half-written.

    Returns:
        What was written, for a person: the Hugging Face layout, or the project's own where `transformers` has no model
        that shares parameters in the same way.
    Raises:
        UserError: as `load_model`, or `out` is not writable.
    """
    model = load_model(run)
    try:
        with atomic.replacing_directory(out) as temporary:
            if model.config.num_attention_blocks == model.config.num_ffn_blocks:
                huggingface.save(model, temporary, run / "spiece.model")
                return "in the Hugging Face layout"
            checkpoint.save(model, temporary)
            shutil.copyfile(run / "spiece.model", temporary / "spiece.model")
            return f"in the project's own format: transformers cannot share {model.config.parameter_sharing!r} alone"
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another place") from None


def _is_export(directory: Path) -> bool:
    """Whether an export may take the place of what is there: an earlier export, or nothing."""
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else {"a file"}
    return not names or bool(names & {"config.json", "albert.json"})


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = Parser(prog="python -m pipeline.export", description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of pipeline.pretrain")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory to write")
    try:
        args = parser.parse_all(sys.argv[1:] if argv is None else argv)
        if args.out.exists() and not _is_export(args.out):
            raise UserError(f"--out {args.out} holds other files; choose another place")
        form = export_run(args.run, args.out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {args.out} {form}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
