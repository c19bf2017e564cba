"""Starts real processes, connected by gloo on this machine, and returns the result of rank 0."""

import logging
import multiprocessing
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from pipeline.distributed.rendezvous import reserve_port

# What every rank imports is imported once, in the server that the ranks are forked from.
multiprocessing.set_forkserver_preload(["tests.pipeline.workers.preloaded"])


def _start(rank: int, environment: dict[str, str], result: str, work: Callable[..., Any], arguments: Any) -> None:
    os.environ.clear()  # the server's
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)

    from pipeline.engine import workarounds

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # DeepSpeed calls torch's collectives by names that torch is about to drop.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    workarounds.init_distributed("gloo")
    value = work(*arguments)
    if rank == 0:
        torch.save(value, result)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def start(world: int, work: Callable[..., Any], *arguments: Any, result: Path) -> Any:
    """Starts `world` processes that each call `work(*arguments)`; rank 0's value goes into the file `result`.

    Returns torch's ProcessContext, whose `join` raises what any of them raised.
    """
    environment = {**os.environ, "WORLD_SIZE": str(world), "MASTER_PORT": str(reserve_port())}
    environment |= {
        "MASTER_ADDR": "127.0.0.1",
        "DS_ACCELERATOR": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    given = (environment, str(result), work, arguments)
    return torch.multiprocessing.start_processes(_start, given, world, join=False, start_method="forkserver")


def run(world: int, work: Callable[..., Any], *arguments: Any, scratch: Path) -> Any:
    """Runs `work(*arguments)` in `world` processes and returns what rank 0's call returned.

    An exception in any of them is raised here.
    """
    result = scratch / f"result-{world}-{reserve_port()}.pt"
    context = start(world, work, *arguments, result=result)
    while not context.join():
        pass
    return torch.load(result, weights_only=False)
