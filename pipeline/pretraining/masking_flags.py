"""The masking settings on the command line: flags, and their conversion into `MaskingSettings`."""

import argparse

from common.errors import UserError
from pipeline.data.masking import MaskingSettings

_PAPER = MaskingSettings()


def add_masking_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --mask-probability, --max-ngram and --mask-replacement; the defaults are the paper's values."""
    add_mask_probability(parser)
    parser.add_argument(
        "--max-ngram",
        type=int,
        default=_PAPER.max_ngram,
        metavar="N",
        help=f"words of the longest masked n-gram ({_PAPER.max_ngram})",
    )
    parser.add_argument(
        "--mask-replacement",
        type=_replacement,
        default=(_PAPER.replace_with_mask, _PAPER.replace_with_random),
        metavar="MASK,RANDOM,KEPT",
        help="parts of the predicted tokens that become [MASK], become a random token, are kept (0.8,0.1,0.1)",
    )


def add_mask_probability(parser: argparse.ArgumentParser) -> None:
    """Adds --mask-probability, the only one of these settings that decides what a step costs."""
    parser.add_argument(
        "--mask-probability",
        type=float,
        default=_PAPER.mask_probability,
        metavar="P",
        help=f"part of the tokens that is predicted ({_PAPER.mask_probability})",
    )


def resolve_masking(args: argparse.Namespace) -> MaskingSettings:
    """The masking settings of a command line with all three flags. Raises UserError: a value is out of its range."""
    with_mask, with_random = args.mask_replacement
    try:
        return MaskingSettings(args.mask_probability, args.max_ngram, with_mask, with_random)
    except ValueError as error:
        raise UserError(str(error)) from None


def _replacement(text: str) -> tuple[float, float]:
    """Reads --mask-replacement: the parts for [MASK] and for random tokens, of three numbers that sum to 1."""
    numbers = [float(part) for part in text.split(",")]
    if len(numbers) != 3 or not all(0 <= number <= 1 for number in numbers) or abs(sum(numbers) - 1) > 1e-6:
        raise argparse.ArgumentTypeError(f"{text} is not three numbers from 0 to 1 that sum to 1, such as 0.8,0.1,0.1")
    return numbers[0], numbers[1]


# argparse names a converter in its message: "invalid list of three numbers value: 'x'".
_replacement.__name__ = "list of three numbers"
