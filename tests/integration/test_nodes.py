"""One worker over two machines: ranks that mpirun starts over ssh."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.pool.command import CORES_VARIABLE
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import LMI, write_properties

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


# What the stub does, without Triton, on the first host.
_SERVER = """
import json, sys
from pathlib import Path
from tests.support.servers.harness import started
properties, prompts = json.loads(sys.stdin.readline())
with started(properties, Path(sys.argv[1])) as harness:
    streams = [harness.start(prompt, max_tokens=20) for prompt in prompts]
    answers = [stream.wait().text for stream in streams]
    report = {"answers": answers, "hosts": harness.plan.parallel.hosts, "output": harness.output}
    print(json.dumps(report), flush=True)
    # Whoever started this looks around.
    sys.stdin.read()
"""


_OF_VLLM = (
    "option.max_model_len", "option.enforce_eager", "option.num_gpu_blocks_override"
)  # fmt: skip


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    if reason := why_not():
        pytest.skip(reason)
    with two_hosts(tmp_path_factory.mktemp("hosts")) as built:
        yield built


@pytest.mark.parametrize("engine", ["vllm", "disable"])
def test_a_model_is_split_over_two_hosts(
    hosts: TwoHosts,
    tiny_properties: dict[str, Any],
    questions: dict[str, str],
    tmp_path: Path,
    engine: str,
) -> None:
    properties = {
        name: str(value)
        for name, value in tiny_properties.items()
        if "lora" not in name and (engine == "vllm" or name not in _OF_VLLM)
    } | {
        "engine": "MPI",
        "option.rolling_batch": engine,
        "option.tensor_parallel_degree": "2",
        "option.mpi_hostfile": str(hosts.hostfile),
        # One core each: both hosts are this machine.
        "option.env": "VLLM_CPU_KVCACHE_SPACE=1,VLLM_CPU_OMP_THREADS_BIND=0|1",
        "option.mpi_options": f"--mca plm_ssh_agent {hosts.agent}",
    }
    with _served(hosts, properties, list(questions), tmp_path) as report:
        _check_what_strangers_see(hosts)
    assert report["hosts"] == ["10.77.0.1", "10.77.0.2"]
    assert dict(zip(questions, report["answers"], strict=True)) == questions
    for rank, name in enumerate(hosts.names):
        assert any(f"rank {rank} of 2 is on {name}" in line for line in report["output"])
    assert not [each for each in psutil.process_iter() if _is_rank(each)]


@contextmanager
def _served(
    hosts: TwoHosts, properties: dict[str, str], prompts: list[str], folder: Path, **variables: str
) -> Iterator[dict[str, Any]]:
    """Serve on the first host until the block ends; give what `_SERVER` says."""
    contract = Path(__file__).resolve().parents[1] / "contract"
    words = [sys.executable, "-c", _SERVER, str(folder)]
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(
            hosts.command(0, *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {"PYTHONPATH": str(contract)} | variables,
            text=True,
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([properties, prompts]) + "\n")
        server.stdin.flush()
        line = server.stdout.readline()
        assert line, (folder / "log").read_text()[-4000:]
        yield json.loads(line)
        server.stdin.close()
        assert server.wait(HANG_SECONDS) == 0


def test_vllm_spans_two_hosts_by_itself(
    hosts: TwoHosts, tiny_properties: dict[str, Any], questions: dict[str, str], tmp_path: Path
) -> None:
    """Without MPI, ssh and Ray: the second host joins, and waits again when the first has ended."""
    properties = {
        name: str(value) for name, value in tiny_properties.items() if "lora" not in name
    } | {
        "engine": "Python",
        "option.tensor_parallel_degree": "2",
        "option.cluster_size": "2",
        "option.distributed_executor_backend": "mp",
    }
    model = write_properties(tmp_path / "model", properties)
    words = [*LMI, "join", str(model), "--node-rank", "1"]
    # One core each: both hosts are this machine.
    first = {"DJL_LEADER_ADDR": ADDRESSES[0], CORES_VARIABLE: "0"}
    environment = os.environ | first | {CORES_VARIABLE: "1"}
    log = tmp_path / "join.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            hosts.command(1, *words), stdout=output, stderr=subprocess.STDOUT, env=environment
        ) as node,
    ):
        with _served(hosts, properties, list(questions), tmp_path, **first) as report:
            assert dict(zip(questions, report["answers"], strict=True)) == questions
            wait_for(lambda: f"joined the model at {ADDRESSES[0]}" in log.read_text())
        wait_for(lambda: "first machine is gone" in log.read_text())
        wait_for(lambda: "worker model/0 is ready" in log.read_text().partition("is gone")[2])
        node.terminate()
        assert node.wait(HANG_SECONDS) == 0, log.read_text()[-4000:]
    assert not [each for each in psutil.process_iter() if _is_rank(each)]


def _check_what_strangers_see(hosts: TwoHosts) -> None:
    ranks = [each for each in psutil.process_iter() if _is_rank(each)]
    assert len(ranks) == 2
    (ours,) = {each.cmdline()[-1].rpartition(":")[2] for each in ranks}
    for host in range(2):
        ports = {port for _, port in hosts.listening(host)} - {SSH_PORT}
        assert ports
        # On the other host, MPI may have a port of that number.
        assert ports <= set(PORTS) - ({int(ours)} if host == 0 else set())
    (token,) = {each.environ()["LMI_BACKEND_TOKEN"] for each in ranks}
    # Both hosts are this machine, and so are mpirun, its daemons and ssh.
    lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert any("prted" in line or "orted" in line for line in lines)
    assert not [line for line in lines if token in line]


def _is_rank(process: psutil.Process) -> bool:
    """Tell a rank on either host, by where it connects to."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return "lmi_backend.worker.main" in words and (
        words[-1].startswith(f"{ADDRESSES[0]}:") and "--host" not in words
    )
