"""What keeps hosts from training, a line for each problem, from what the probe has found."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from common.text import quantity
from pipeline.distributed.query import Answer

MAX_CLOCK_SECONDS = 5.0  # up to this difference, a person can order the logs of two hosts by time


def problems_of_host(name: str, slots: int, answer: Answer, here: Answer, environment: Mapping[str, str]) -> list[str]:
    """What keeps a host from training: one line for each problem, with the host's name and the remedy.

    Args:
        name, slots: of the host, from the hostfile.
        answer: of that host.
        here: of this host.
        environment: the variables that DeepSpeed will export there.
    """
    if answer.problem:
        return [f"{name} {answer.problem}"]
    there, mine = answer.found, here.found
    lines = _of_code(there, mine) + _of_data(there, mine)
    if there["output"]:
        lines.append(f"--output {there['output']}; it must be one folder that all hosts share")
    early, late = answer.sent - there["time"], there["time"] - answer.received
    if max(early, late) > MAX_CLOCK_SECONDS:
        fault = f"{early:.0f} s slow" if early > late else f"{late:.0f} s fast"
        lines.append(f"its clock is {fault}; set it by NTP (chronyc tracking)")
    on_cpu = environment.get("DS_ACCELERATOR") == "cpu"
    count, device = (there["cores"], "core") if on_cpu else (there["gpus"], "GPU")
    if there["gpu_problem"]:
        lines.append(
            f"torch cannot compute on its GPUs: {there['gpu_problem']}; see `nvidia-smi` there, and README, "
            '"GPU drivers"'
        )
    elif count < slots:
        lines.append(
            f"has {quantity(count, device)}, and {quantity(slots, 'slot')} in the hostfile; correct the hostfile, or "
            "see nvidia-smi"
        )
    if there.get("exclusive"):
        lines.append(
            "its GPUs are in compute mode Exclusive_Process, in which a run cannot try attention kernels; give "
            "`nvidia-smi -c DEFAULT` there"
        )
    lines += [
        f"has no network interface {interface}, which .deepspeed_env names; see `ip -brief address` there"
        for interface in there["interfaces"]
    ]
    if there["port"]:
        lines.append(f"cannot reach rank 0's host ({there['port']}); open the port, or give another --master_addr")
    if there["taken"]:
        lines.append("the port is taken; end what listens there, or give another --master_port")
    return [f"{name}: {line}" for line in lines]


def problems_of_packages(installed: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Packages that are missing or have another version than requirements.txt, on this machine.

    A version's local part, such as `+cu126` of a torch build, does not matter.
    """
    other = [name for name, version in wanted.items() if installed[name].partition("+")[0] != version]
    if not other:
        return []
    shown = ", ".join(f"{name} {installed[name]} (requirements.txt: {wanted[name]})" for name in other[:4])
    more = f" and {len(other) - 4} more" if len(other) > 4 else ""
    return [f"this machine: other packages: {shown}{more}; pip install -r requirements.txt"]


def _of_code(there: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
    """Differences in code, Python and packages."""
    lines = []
    sources = sorted(set(there["sources"]) | set(mine["sources"]))
    if other := [path for path in sources if there["sources"].get(path) != mine["sources"].get(path)]:
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        commits = f", commit {there['commit'] or 'unknown'} there and {mine['commit'] or 'unknown'} here"
        lines.append(f"other code ({other[0]}{more}{commits}); bring it to the same commit, without changes")
    if there["python"] != mine["python"]:
        lines.append(f"Python {there['python']}, and {mine['python']} here; make the environment with the same one")
    if other := [name for name in mine["packages"] if there["packages"][name] != mine["packages"][name]]:
        versions = ", ".join(f"{name} {there['packages'][name]} (here {mine['packages'][name]})" for name in other[:4])
        more = f" and {len(other) - 4} more" if len(other) > 4 else ""
        lines.append(f"other packages: {versions}{more}; pip install -r requirements.txt there")
    return lines


def _of_data(there: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
    """Shards that are missing, different or damaged."""
    lines = []
    for directory, found in there["data"].items():
        if found["manifest"] == "none":
            lines.append(f"has no shards in {directory}; copy them, or mount the storage that holds them")
        elif found["manifest"] != mine["data"][directory]["manifest"]:
            lines.append(f"{directory} has another manifest.json there; copy the shards again")
        elif found["damaged"]:
            count = len(found["damaged"])
            lines.append(f"{directory}: {count} files missing or cut short, as {found['damaged'][0]}; copy them again")
    return lines


def problems_of_launcher(hosts: Sequence[str]) -> list[str]:
    """Problems of this host's ssh: without keepalives, DeepSpeed's launcher waits for a lost host forever."""
    if len(hosts) < 2 or "ServerAliveInterval" in os.environ.get("PDSH_SSH_ARGS_APPEND", ""):
        return []
    result = subprocess.run(["ssh", "-G", "--", hosts[-1]], capture_output=True, text=True, check=False)
    if "serveraliveinterval 0" not in result.stdout.splitlines():
        return []
    return [
        "this host: ssh does not notice that a host is lost; "
        "export PDSH_SSH_ARGS_APPEND='-o ServerAliveInterval=10 -o ServerAliveCountMax=3'"
    ]
