"""One worker over two machines: ranks that mpirun starts over ssh."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from two_hosts import TwoHosts, two_hosts, why_not

# What the stub does, without Triton, on the first host.
_SERVER = """
import json, sys
from pathlib import Path
from harness import started
properties, prompts = json.load(sys.stdin)
with started(properties, Path(sys.argv[1])) as harness:
    streams = [harness.start(prompt, max_tokens=20) for prompt in prompts]
    answers = [stream.wait().text for stream in streams]
    print(json.dumps({"answers": answers, "hosts": harness.plan.hosts, "output": harness.output}))
"""


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
    of_vllm = ("option.max_model_len", "option.enforce_eager")
    properties = {
        name: str(value)
        for name, value in tiny_properties.items()
        if "lora" not in name and (engine == "vllm" or name not in of_vllm)
    } | {
        "engine": "MPI",
        "option.rolling_batch": engine,
        "option.tensor_parallel_degree": "2",
        "option.mpi_hostfile": str(hosts.hostfile),
        # One core each: both hosts are this machine.
        "option.env": "VLLM_CPU_KVCACHE_SPACE=1,VLLM_CPU_OMP_THREADS_BIND=0|1",
        "option.mpi_options": f"--mca plm_ssh_agent {hosts.agent}",
    }
    contract = Path(__file__).resolve().parents[1] / "contract"
    words = [sys.executable, "-c", _SERVER, str(tmp_path)]
    done = subprocess.run(
        hosts.command(0, *words),
        input=json.dumps([properties, list(questions)]),
        env=os.environ | {"PYTHONPATH": str(contract)},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["hosts"] == ["10.77.0.1", "10.77.0.2"]
    assert dict(zip(questions, said["answers"], strict=True)) == questions
    for rank, name in enumerate(hosts.names):
        assert any(f"rank {rank} of 2 is on {name}" in line for line in said["output"])
    left = [each for each in psutil.process_iter() if _is_of(each, hosts)]
    assert not left


def _is_of(process: psutil.Process, hosts: TwoHosts) -> bool:
    """Tell a rank that was left behind on either host."""
    try:
        return str(hosts.folder) in " ".join(process.environ().values()) and (
            "lmi_backend.workers.main" in process.cmdline()
        )
    except psutil.Error:
        return False
