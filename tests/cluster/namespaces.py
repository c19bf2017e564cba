"""Hosts made of namespaces. Each has its own network, processes, host name and mounts, and shares the machine's files.

All hosts are connected to one switch, a bridge in a namespace of its own:

    node1 eth0 ---- port1 [switch] port2 ---- eth0 node2

A host is the process tree below its first process. Killing that tree is like a power failure and leaves nothing behind.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).resolve().parents[2]
SEARCHED = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PACKAGES = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
HOST = ("--net", "--uts", "--mount", "--pid", "--mount-proc")  # the namespaces of a host, as flags of unshare


def what_is_missing(packages: Mapping[str, str] = PACKAGES) -> str:
    """Why hosts cannot be made here; "" if they can. packages: by needed program, the package that has it."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [package for tool, package in packages.items() if not shutil.which(tool, path=SEARCHED)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    trial = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"]
    result = subprocess.run(trial, capture_output=True, text=True, check=False)
    return f"no namespaces here: {result.stderr.strip()}" if result.returncode else ""


class Namespaces:
    """A process in namespaces of its own, which end with it.

    Attributes:
        outer: the process that ends the others when it is killed.
        first: the first process inside.
    """

    def __init__(self, kinds: list[str], script: str, log: Path) -> None:
        """Starts the shell `script` in new namespaces of these kinds; it runs once `go` is called."""
        # unshare itself stays outside of the new process namespace, and takes what is inside along when it is killed.
        command = ["unshare", *kinds, "--fork", "--kill-child", "sh", "-c", f"read go\n{script}"]
        with log.open("w") as file:
            self.outer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file)
        outer = psutil.Process(self.outer.pid)
        wait_until(lambda: bool(outer.children()))
        self.first = outer.children()[0]

    def go(self) -> None:
        """Lets the script begin."""
        assert self.outer.stdin is not None
        self.outer.stdin.write(b"\n")
        self.outer.stdin.close()

    def enter(self, *command: object) -> list[str]:
        """A command line that runs `command` inside."""
        kinds = ["--net", "--uts", "--mount", "--pid"]
        return ["nsenter", f"--target={self.first.pid}", *kinds, f"--wd={REPOSITORY}", *map(str, command)]

    def end(self) -> None:
        """Kills every process inside, as a power failure does."""
        self.outer.kill()
        self.outer.wait()


@dataclass(frozen=True)
class Host:
    """A host by name and address; `port` is its place on the switch."""

    name: str
    address: str
    port: str
    inside: Namespaces

    def processes(self, word: str) -> list[psutil.Process]:
        """The descendants of its first process that have `word` among the words of their command line."""
        return descendants(self.inside.first, word)


def descendants(process: psutil.Process, word: str) -> list[psutil.Process]:
    """The descendants of a process that have `word` among the words of their command line."""
    found = []
    for one in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if word in one.cmdline():
                found.append(one)
    return found


class Switch:
    """The switch, and the hosts on it by name. `directory` gets the logs of their first processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hosts: dict[str, Host] = {}
        self.inside = Namespaces(["--net"], "exec sleep infinity", directory / "switch.log")
        self._command("add", "bridge", "type", "bridge")
        self._command("set", "bridge", "up")
        self.inside.go()

    def connect(self, name: str, number: int, script: str) -> Host:
        """Starts a host with the address 10.64.0.`number`. Its first process runs the shell `script` once it is
        connected."""
        address, port = f"10.64.0.{number}", f"port{number}"
        inside = Namespaces(list(HOST), script, self.directory / f"{name}.log")
        self._command("add", port, "type", "veth", "peer", "name", "eth0", "netns", inside.first.pid)
        self._command("set", port, "master", "bridge", "up")
        network = ["nsenter", f"--target={inside.first.pid}", "--net", "ip"]
        run(*network, "link", "set", "lo", "up")
        run(*network, "address", "add", f"{address}/24", "dev", "eth0")
        run(*network, "link", "set", "eth0", "up")
        inside.go()
        host = self.hosts[name] = Host(name, address, port, inside)
        return host

    def unplug(self, host: Host) -> None:
        """Takes the host's cable out of the switch. The host itself sees its link up, as behind a broken switch."""
        self._command("set", host.port, "down")

    def plug_in(self, host: Host) -> None:
        """Undoes `unplug`."""
        self._command("set", host.port, "up")

    def end(self) -> None:
        """Ends all hosts and the switch."""
        for host in self.hosts.values():
            host.inside.end()
        self.inside.end()

    def _command(self, *words: object) -> None:
        run("nsenter", f"--target={self.inside.first.pid}", "--net", "ip", "link", *words)


def run(*command: object) -> None:
    """Runs a command that must succeed. Raises RuntimeError with its output if it does not."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{command}: {result.stdout}{result.stderr}")


def wait_until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Waits until `holds` is true. Raises RuntimeError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("a host did not start")
        time.sleep(0.02)
