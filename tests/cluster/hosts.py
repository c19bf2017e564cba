"""The hosts of `tests.cluster.namespaces`, with an sshd each.

Keys, configuration and home directory are made by the test. The machine's own are neither used nor changed.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import namespaces
from tests.cluster.namespaces import REPOSITORY, SEARCHED, Host, Switch, run, wait_until

PACKAGES = namespaces.PACKAGES | {"sshd": "openssh-server", "ssh": "openssh-client", "pdsh": "pdsh"}

__all__ = ["REPOSITORY", "Cluster", "Host", "what_is_missing"]


def what_is_missing() -> str:
    """Why hosts cannot be made here; "" if they can."""
    return namespaces.what_is_missing(PACKAGES)


class Cluster(Switch):
    """Hosts on one switch. `directory` gets keys, configuration and logs; `home` is HOME on all of them."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
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
        exported = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{SEARCHED}",
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        (self.home / ".deepspeed_env").write_text("".join(f"{name}={value}\n" for name, value in exported.items()))
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.environment = {**os.environ, **exported, **as_root, "HOME": str(self.home)}
        # Where ranks share a machine they may outnumber its cores; here each has a host to go to.
        self.environment.pop("PRTE_MCA_rmaps_default_mapping_policy", None)

    def start(self, name: str, mounts: Mapping[Path, Path] | None = None) -> Host:
        """Starts a host and waits until its sshd answers.

        Args:
            name: its host name.
            mounts: places on this host alone, and what stands there instead.
        """
        number = len(self.hosts) + 1
        address = f"10.64.0.{number}"
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
        host = self.connect(name, number, "\n".join(script))
        with self.ssh_config.open("a") as file:
            file.write(f"Host {name}\n  HostName {address}\n")
        ssh = [self.directory / "bin" / "ssh", "-o", "BatchMode=yes", address, "true"]
        wait_until(lambda: subprocess.run(host.inside.enter(*ssh), capture_output=True, check=False).returncode == 0)
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
