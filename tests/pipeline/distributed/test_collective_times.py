"""The time that a rank spends in collectives, by a clock and by events that the test moves on."""

import json
import time

import pytest

from pipeline.distributed.collective_times import CollectiveTimes, StepTimes
from pipeline.distributed.ports import reserve_port
from tests.pipeline.workers.forked import Forked


class Device:
    """A clock of the host, and a device whose events stand at the time `at` and are passed once `passed` is true."""

    def __init__(self):
        self.now, self.at, self.passed = 0.0, 0.0, True

    def clock(self):
        return self.now

    def make_event(self):
        return Event(self)


class Event:
    def __init__(self, device):
        self._device = device

    def record(self):
        self.at = self._device.at

    def query(self):
        return self._device.passed

    def elapsed_time(self, end):
        return 1000 * (end.at - self.at)


def test_the_own_work_is_the_step_without_the_host_s_waits():
    device = Device()
    times = CollectiveTimes(clock=device.clock)
    device.now = 5.0
    times.spent(2.0)
    times.spent(1.0)
    assert times.end_step() == StepTimes(work=2.0, whole=5.0)
    device.now = 6.0
    assert times.end_step() == StepTimes(work=1.0, whole=1.0)


def collective(times, device, seconds, work):
    """A collective that takes the device `seconds`."""
    event = times.entered(on_device=True)
    times.started(work, event)
    device.at += seconds
    times.left(work)


def test_the_waits_of_a_device_are_read_two_steps_later_and_never_waited_for():
    device = Device()
    times = CollectiveTimes(device.make_event, device.clock)
    for step, seconds in enumerate((3.0, 1.0, 4.0)):
        collective(times, device, seconds, object())
        device.now += 10.0
        assert times.end_step() == (None if step < 2 else StepTimes(work=7.0, whole=10.0))
    device.passed = False
    device.now += 10.0
    assert times.end_step() is None  # the second step: the device has not passed its events
    device.passed = True
    device.now += 10.0
    assert times.end_step() == StepTimes(work=6.0, whole=10.0)


def test_a_step_with_an_evaluation_or_a_save_is_left_out():
    device = Device()
    times = CollectiveTimes(clock=device.clock)
    times.leave_out()
    device.now = 100.0
    assert times.end_step() is None
    device.now = 101.0
    assert times.end_step() == StepTimes(work=1.0, whole=1.0)


def step_with_two_others():
    """Five steps of three ranks, of which the second one comes 0.2 s late. Prints each rank's own work."""
    import torch
    import torch.distributed as dist

    from pipeline.distributed import collective_times, collectives
    from pipeline.distributed.exits import run_and_exit

    def main():
        dist.init_process_group("gloo")
        collectives.note()
        times = collective_times.of_this_process()
        dist.barrier()
        times.end_step()
        for _ in range(5):
            if dist.get_rank() == 1:
                time.sleep(0.2)
            dist.all_reduce(torch.ones(1000))
        print(json.dumps(times.end_step()), flush=True)
        dist.barrier()
        return 0

    run_and_exit(main)


@pytest.mark.slow
def test_collectives_are_noted_whoever_calls_them(tmp_path):
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port()), "WORLD_SIZE": "3"}
    ranks = [
        Forked(tmp_path / str(rank), step_with_two_others, environment={**shared, "RANK": str(rank)})
        for rank in range(3)
    ]
    assert [rank.status() for rank in ranks] == [0, 0, 0]
    times = [StepTimes(*json.loads(rank.stdout)) for rank in ranks]
    assert times[1].work >= 1.0
    for rank in (0, 2):  # the others wait in the collectives while the second one sleeps
        assert times[rank].whole - times[rank].work >= times[1].work - times[rank].work - 0.1
        assert times[rank].work < times[1].work
