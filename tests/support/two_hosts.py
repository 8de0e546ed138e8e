"""Two hosts on this machine: network namespaces with host names and an sshd of their own."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import wait_for

ADDRESSES = ("10.77.0.1", "10.77.0.2")
SSH_PORT = 2222
PORTS = range(20000, 21000)
"""The kernel of either host gives others to nobody, as docs/engines.md advises."""
_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
"""
_AGENT = """\
#!/bin/sh
exec ssh -i {folder}/user -p {port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \\
  -o LogLevel=ERROR -o BatchMode=yes "$@"
"""


def why_not() -> str:
    """Return what keeps this machine from having two hosts; empty if nothing does."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [
        tool for tool in ("ip", "ssh", "unshare", "/usr/sbin/sshd") if not shutil.which(tool)
    ]
    if missing:
        packages = "iproute2 openssh-client openssh-server util-linux"
        return f"no {', '.join(missing)}: apt-get install {packages}"
    name = f"lmi-probe-{os.getpid()}"
    probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if probe.returncode:
        return f"no network namespace: {probe.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


@dataclass(frozen=True)
class TwoHosts:
    """The first is where the server runs; mpirun reaches the second over ssh."""

    names: tuple[str, str]
    folder: Path

    @property
    def agent(self) -> Path:
        """What mpirun uses for ssh."""
        return self.folder / "agent.sh"

    @property
    def hostfile(self) -> Path:
        return self.folder / "hosts"

    def listening(self, host: int) -> list[tuple[str, int]]:
        """Return address and port of everything that listens on a host over TCP."""
        words = ["ip", "netns", "exec", self.names[host], "ss", "-tlnH"]
        lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        locals_ = (line.split()[3].rpartition(":") for line in lines.splitlines())
        return [(address, int(port)) for address, _, port in locals_]

    def command(self, host: int, *words: str) -> list[str]:
        name = self.names[host]
        script = f'hostname {name}; exec "$@"'
        inside = ["unshare", "--uts", "sh", "-c", script, "sh", *words]
        return ["ip", "netns", "exec", name, *inside]


@contextmanager
def two_hosts(folder: Path) -> Iterator[TwoHosts]:
    """Build them, and remove them whatever happens."""
    names = (f"lmi-a-{os.getpid()}", f"lmi-b-{os.getpid()}")
    hosts = TwoHosts(names, folder)
    try:
        _connect(names)
        _write(folder)
        words = hosts.command(1, "/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config"))
        with (folder / "sshd.log").open("wb") as log, subprocess.Popen(words, stderr=log) as daemon:
            try:
                _wait_for_ssh(hosts)
                yield hosts
            finally:
                daemon.terminate()
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _connect(names: tuple[str, str]) -> None:
    ends = [f"lmi{index}-{os.getpid()}"[:15] for index in range(2)]
    for name in names:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        setting = f"echo {PORTS.start} {PORTS.stop - 1} > /proc/sys/net/ipv4/ip_local_port_range"
        _ip("netns", "exec", name, "sh", "-c", setting)
    first, second = ends
    _ip("link", "add", first, "netns", names[0], "type", "veth", "peer", second, "netns", names[1])
    for name, end, address in zip(names, ends, ADDRESSES, strict=True):
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
        _ip("-n", name, "link", "set", end, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _write(folder: Path) -> None:
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    config = _CONFIG.format(address=ADDRESSES[1], folder=folder, port=SSH_PORT)
    (folder / "sshd_config").write_text(config)
    (folder / "agent.sh").write_text(_AGENT.format(folder=folder, port=SSH_PORT))
    (folder / "agent.sh").chmod(0o755)
    (folder / "hosts").write_text("".join(f"{address} slots=1\n" for address in ADDRESSES))
    # sshd wants it, and only Debian's service makes it.
    Path("/run/sshd").mkdir(exist_ok=True)


def _wait_for_ssh(hosts: TwoHosts) -> None:
    words = hosts.command(0, str(hosts.agent), ADDRESSES[1], "hostname")

    def answers() -> bool:
        answer = subprocess.run(words, check=False, capture_output=True, text=True)
        return answer.stdout.strip() == hosts.names[1]

    wait_for(answers)
