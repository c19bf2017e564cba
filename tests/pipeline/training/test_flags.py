"""The flags that both training commands have, and the types of their values."""

import argparse

import pytest

from pipeline.finetuning import settings as finetuning_settings
from pipeline.pretraining import settings as pretraining_settings
from pipeline.training import flags
from pipeline.training.flags import Defaults, add_run_arguments


def actions(parser):
    return {action.option_strings[-1]: action for action in parser._actions if action.option_strings}


def test_both_commands_read_the_shared_flags_in_the_same_way():
    shared = argparse.ArgumentParser()
    add_run_arguments(shared, Defaults(None, "all", "none", 1, 1))
    names = actions(shared).keys() - {"--help"}
    assert len(names) == 18
    pretraining, finetuning = actions(pretraining_settings.parser()), actions(finetuning_settings.parser())
    for name in names:
        one, other = pretraining[name], finetuning[name]
        assert (one.type, one.choices, one.dest) == (other.type, other.choices, other.dest), name
    own = {"--deepspeed_config", "--log-interval", "--eval-interval"}  # have a default of their own
    assert {name for name in names if pretraining[name].default == finetuning[name].default} >= names - own


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (flags.positive, "1", 1),
        (flags.positive, "1000000000", 10**9),
        (flags.natural, "0", 0),
        (flags.natural, str(2**63 - 1), 2**63 - 1),
        (flags.below_one, "0", 0.0),
        (flags.hours, "0.5", 0.5),
        (flags.host_timeout, "3", 3.0),
        (flags.host_timeout, "3600", 3600.0),
        (flags.hang_timeout, "0", 0.0),
        (flags.hang_timeout, "1", 1.0),
        (flags.hang_timeout, "86400", 86400.0),
    ],
)
def test_values_at_the_bounds_are_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (flags.positive, "0"),
        (flags.positive, "1000000001"),
        (flags.natural, "-1"),
        (flags.natural, str(2**63)),
        (flags.below_one, "1"),
        (flags.below_one, "-0.1"),
        (flags.below_one, "nan"),
        (flags.hours, "0"),
        (flags.hours, "nan"),
        (flags.hours, "inf"),
        (flags.host_timeout, "2.9"),
        (flags.host_timeout, "3601"),
        (flags.hang_timeout, "0.5"),
        (flags.hang_timeout, "-1"),
        (flags.hang_timeout, "86401"),
        (flags.hang_timeout, "nan"),
    ],
)
def test_values_outside_are_refused(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match=text):
        read(text)
