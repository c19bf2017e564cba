"""What several folders of tests share."""

import argparse
import fcntl
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from data_prep.sources import sample

# A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and then interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, so that a failure is of the code that changed.
settings.register_profile("project", derandomize=True, deadline=None)
settings.load_profile("project")


gc.disable()  # while the tests are imported, which makes millions of objects that stay


def pytest_collection_finish() -> None:
    """Lets the garbage collector run from here on, and never look at what has been imported."""
    gc.enable()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of tests/cluster. Files whose tests take long come first: so processes end at about one time."""
    places: dict[Path, int] = {}
    for item in items:
        if "cluster" in item.path.relative_to(item.config.rootpath).parts:
            item.add_marker(pytest.mark.cluster)
        place = 0 if item.get_closest_marker("cluster") else 1 if item.get_closest_marker("slow") else 2
        places[item.path] = min(place, places.get(item.path, place))
    items.sort(key=lambda item: places[item.path])


@pytest.fixture(scope="session", autouse=True)
def mpirun_has_its_own_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A killed mpirun leaves `ompi.PID` in /tmp, and no later one with that PID starts until it is deleted."""
    os.environ.update(PRTE_MCA_prte_tmpdir_base=str(tmp_path_factory.mktemp("mpirun")))


@pytest.fixture(autouse=True)
def no_process_group_is_left() -> Iterator[None]:
    """A test that leaves torch's process group fails itself, and not a later one of its worker."""
    yield
    if "torch" in sys.modules and (dist := sys.modules["torch"].distributed).is_initialized():
        dist.destroy_process_group()
        pytest.fail("this test left a process group of torch")


@pytest.fixture(autouse=True)
def stop_signals_end_with_the_test() -> Iterator[None]:
    """A run inside the test's process installs the handlers of `StopSignals`; a later test's Ctrl-C is not theirs."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def sample_corpus() -> Path:
    """What `python -m data_prep sample` makes: wikipedia/, books/, api/. It is fetched once a checkout and version."""
    directory = Path(__file__).resolve().parent.parent / ".cache" / f"sample-{sample.SAMPLE_DIGEST[:12]}"
    directory.parent.mkdir(exist_ok=True)
    with (directory.parent / "sample.lock").open("w") as lock:  # the tests may run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        sample.run(argparse.Namespace(out=directory))
    return directory


@pytest.fixture
def flash_on_processor() -> Iterator[None]:
    """FlashAttention's operator computes on a processor, too."""
    import torch

    from tests.model import flash_stand_in

    with torch.library._scoped_library("aten", "IMPL") as library:
        flash_stand_in.install(library)
        yield
