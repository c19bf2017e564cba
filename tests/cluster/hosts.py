"""Hosts made of namespaces. Each has its own network, processes, host name, mounts and sshd, and shares the files.

All hosts are connected to one switch, a bridge in a namespace of its own:

    node1 eth0 ---- port1 [switch] port2 ---- eth0 node2

A host is the process tree below its first process. Killing that tree is like a power failure and leaves nothing behind.
Keys, configuration and home directory are made by the test. The machine's own are neither used nor changed.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).resolve().parents[2]
SEARCHED = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PACKAGES = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
PACKAGES |= {"sshd": "openssh-server", "ssh": "openssh-client", "pdsh": "pdsh"}
HOST = ("--net", "--uts", "--mount", "--pid")  # the namespaces of a host, as flags of unshare and nsenter


def what_is_missing() -> str:
    """Why hosts cannot be made here; "" if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [package for tool, package in PACKAGES.items() if not shutil.which(tool, path=SEARCHED)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    result = subprocess.run(["unshare", *HOST, "--fork", "true"], capture_output=True, text=True, check=False)
    return f"no namespaces here: {result.stderr.strip()}" if result.returncode else ""


class Namespaces:
    """A process in namespaces of its own, which end with it; `first` is the first process inside."""

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
        assert self.outer.stdin is not None
        self.outer.stdin.write(b"\n")
        self.outer.stdin.close()

    def enter(self, *command: object, kinds: tuple[str, ...] = HOST) -> list[str]:
        """A command line that runs `command` inside."""
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
        found = []
        for one in self.inside.first.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if word in one.cmdline():
                    found.append(one)
        return found


class Cluster:
    """A switch, and the hosts on it by name. `directory` gets keys, configuration and logs; `home` is HOME on all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hosts: dict[str, Host] = {}
        self.switch = Namespaces(["--net"], "exec sleep infinity", directory / "switch.log")
        self._link("add", "bridge", "type", "bridge")
        self._link("set", "bridge", "up")
        self.switch.go()
        self.home = directory / "home"
        self.home.mkdir(parents=True)
        for key in ("host_key", "user_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / key)
        self.ssh_config = directory / "ssh_config"
        self.ssh_config.write_text(
            f"User root\nIdentityFile {directory / 'user_key'}\nIdentitiesOnly yes\nLogLevel ERROR\n"
            f"UserKnownHostsFile {directory / 'known_hosts'}\nGlobalKnownHostsFile none\nStrictHostKeyChecking no\n"
        )
        programs = directory / "bin"
        programs.mkdir()
        ssh = shutil.which("ssh")
        (programs / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {shlex.quote(str(self.ssh_config))} "$@"\n')
        (programs / "ssh").chmod(0o755)
        exported = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        exported["PATH"] = f"{programs}:{Path(sys.executable).parent}:{SEARCHED}"
        (self.home / ".deepspeed_env").write_text("".join(f"{name}={value}\n" for name, value in exported.items()))
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.environment = {**os.environ, **exported, **as_root, "HOME": str(self.home)}
        # Where ranks share a machine they may outnumber its cores; here each has a host to go to.
        self.environment.pop("PRTE_MCA_rmaps_default_mapping_policy", None)

    def start(self, name: str, mounts: Mapping[Path, Path] | None = None) -> Host:
        """Starts a host and waits until its sshd answers. mounts: places on it alone, and what stands there instead."""
        number = len(self.hosts) + 1
        address, port = f"10.64.0.{number}", f"port{number}"
        config = self.directory / f"{name}.sshd_config"
        config.write_text(
            f"ListenAddress {address}\nHostKey {self.directory / 'host_key'}\nPidFile none\nUsePAM no\nStrictModes no\n"
            f"AuthorizedKeysFile {self.directory / 'user_key.pub'}\nPasswordAuthentication no\n"
            f"SetEnv HOME={self.home}\n"
        )
        script = [
            "set -e",
            f"hostname {name}",
            "mount -t tmpfs tmpfs /run",
            "mkdir /run/sshd",
            *(f"mount --bind {shlex.quote(str(source))} {place}" for place, source in (mounts or {}).items()),
            f"exec {shutil.which('sshd', path=SEARCHED)} -D -e -f {config}",
        ]
        inside = Namespaces([*HOST, "--mount-proc"], "\n".join(script), self.directory / f"{name}.log")
        self._link("add", port, "type", "veth", "peer", "name", "eth0", "netns", inside.first.pid)
        self._link("set", port, "master", "bridge", "up")
        for words in ("link set lo up", f"address add {address}/24 dev eth0", "link set eth0 up"):
            run(*inside.enter("ip", *words.split(), kinds=("--net",)))
        inside.go()
        host = self.hosts[name] = Host(name, address, port, inside)
        with self.ssh_config.open("a") as file:
            file.write(f"Host {name}\n  HostName {address}\n")
        ssh = [self.directory / "bin" / "ssh", "-o", "BatchMode=yes", address, "true"]
        wait_until(lambda: subprocess.run(inside.enter(*ssh), capture_output=True, check=False).returncode == 0)
        return host

    def popen(self, host: Host, *command: object, **environment: str) -> subprocess.Popen[str]:
        """Starts `command` on a host, from the repository's root; its stdout and stderr are one pipe."""
        return subprocess.Popen(
            host.inside.enter(*command),
            env=self.environment | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def unplug(self, host: Host) -> None:
        """Takes the host's cable out of the switch. The host itself sees its link up, as behind a broken switch."""
        self._link("set", host.port, "down")

    def plug_in(self, host: Host) -> None:
        self._link("set", host.port, "up")

    def end(self) -> None:
        for host in self.hosts.values():
            host.inside.end()
        self.switch.end()

    def _link(self, *words: object) -> None:
        """Runs `ip link` on the switch."""
        run(*self.switch.enter("ip", "link", *words, kinds=("--net",)))


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
