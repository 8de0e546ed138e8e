from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import lmi_backend
from lmi_backend.engine_config import EngineConfig
from lmi_backend.plan.engine_plan import EnginePlan, Launch, Parallel
from lmi_backend.pool.command import (
    CORES_VARIABLE,
    LaunchContext,
    WorkerCommand,
    link_package,
    readable,
    worker_command,
)

SOCKET = Path("/run/x/0.sock")
CONFIG = EngineConfig(model="m")
NIXL_PORT = "VLLM_NIXL_SIDE_CHANNEL_PORT"
_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"


def command_of(
    inherited: Mapping[str, str] = {},
    index: int = 0,
    engine: str = "vllm",
    environment: Mapping[str, str] = {},
    config: EngineConfig = CONFIG,
    **parallel: Any,
) -> WorkerCommand:
    made = EnginePlan(
        engine=engine,
        config=config,
        launch=Launch(python="/e/bin/python", environment=environment),
        parallel=Parallel(**parallel),
    )
    place = LaunchContext(index, SOCKET.parent, str(SOCKET), "secret", 29400)
    command = worker_command(made, place, inherited)
    assert "secret" not in " ".join(command.argv)
    return command


def environment(*given: Any, **named: Any) -> dict[str, str]:
    command = command_of(*given, **named)
    assert command.argv == (
        "/e/bin/python",
        "-m",
        "lmi_backend.worker.main",
        "--connect",
        "/run/x/0.sock",
    )
    return dict(command.environment)


def test_the_job_variables_of_an_mpi_server_stay_out() -> None:
    job = {"OMPI_COMM_WORLD_RANK": "0", "PMIX_RANK": "0", "PMI_ID": "1"}
    settings = {"OMPI_MCA_btl": "tcp", "PMIX_MCA_gds": "hash", "MY_OMPI_X": "1"}
    made = environment(job | settings)
    assert {name for name in job | settings if name in made} == set(settings)


def test_ranks_on_one_machine_listen_on_no_port_for_each_other() -> None:
    assert environment()["OMPI_MCA_btl"] == "^tcp"
    assert environment({"OMPI_MCA_btl": "self,tcp"})["OMPI_MCA_btl"] == "self,tcp"


def test_the_servers_libraries_stay_out() -> None:
    inherited = {"LD_LIBRARY_PATH": "/triton:/user", "LMI_BACKEND_LD_LIBRARY_PATH": "/user"}
    made = environment(inherited)
    assert made["LD_LIBRARY_PATH"] == "/user"
    assert "LMI_BACKEND_LD_LIBRARY_PATH" not in made
    assert environment({"LD_LIBRARY_PATH": "/cuda"})["LD_LIBRARY_PATH"] == "/cuda"


@pytest.mark.parametrize(("inherited", "expected"), [({}, "0"), ({_HEADERS: "1"}, "1")])
def test_no_headers_are_compiled_ahead(inherited: dict[str, str], expected: str) -> None:
    assert environment(inherited)[_HEADERS] == expected


def test_each_worker_sees_its_own_devices() -> None:
    groups = (("0", "2"), ("5", "7"))
    assert environment(index=1, device_groups=groups)["CUDA_VISIBLE_DEVICES"] == "5,7"
    assert environment(device_groups=groups)["CUDA_VISIBLE_DEVICES"] == "0,2"
    inherited = {"CUDA_VISIBLE_DEVICES": ""}
    assert environment(inherited)["CUDA_VISIBLE_DEVICES"] == ""


def test_devices_are_counted_as_the_plan_counts_unless_a_mask_counts_otherwise() -> None:
    groups = (("0",), ("1",))
    assert environment(device_groups=groups)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    asked = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert environment(asked, device_groups=groups)["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    masked = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert "CUDA_DEVICE_ORDER" not in environment(masked, device_groups=groups)
    assert "CUDA_DEVICE_ORDER" not in environment()


def test_the_package_and_the_interpreter_come_first() -> None:
    made = environment({"PYTHONPATH": "/mine", "PATH": "/bin"})
    assert made["PYTHONPATH"] == "/run/x:/mine"
    assert made["PATH"] == "/e/bin:/bin"
    assert environment()["PYTHONPATH"] == "/run/x"


def test_the_users_variables_win() -> None:
    made = environment({"LC_ALL": "C"}, environment={"VLLM_NO_USAGE_STATS": "0", "A": "b"})
    assert (made["VLLM_NO_USAGE_STATS"], made["A"]) == ("0", "b")
    assert environment()["LC_ALL"] == "C.UTF-8"
    mask = environment(device_groups=(("0",),), environment={"CUDA_VISIBLE_DEVICES": "3"})
    assert mask["CUDA_VISIBLE_DEVICES"] == "3"


def test_the_inherited_environment_stays_as_it_was() -> None:
    inherited = {"PMI_ID": "1", "PATH": "/bin", "LMI_BACKEND_LD_LIBRARY_PATH": "/user"}
    before = dict(inherited)
    environment(inherited)
    assert inherited == before


def test_the_token_and_the_workers_own_folder_are_set() -> None:
    made = environment({"TMPDIR": "/tmp", "LMI_BACKEND_TOKEN": "old"})
    assert (made["LMI_BACKEND_TOKEN"], made["TMPDIR"]) == ("secret", "/run/x")


def test_only_this_package_becomes_importable(tmp_path: Path) -> None:
    link_package(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lmi_backend"]
    assert (tmp_path / "lmi_backend").resolve() == Path(lmi_backend.__file__).parent


def test_workers_on_the_cpu_have_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    two = {"device_groups": ((), ())}
    assert environment(index=0, **two)[CORES_VARIABLE] == "0,1,2,3"
    assert environment(index=1, **two)[CORES_VARIABLE] == "4,5,6,7"
    assert environment(index=1, tensor_parallel_degree=2, **two)[CORES_VARIABLE] == "4,5|6,7"
    # Ranks of one worker fight for cores too.
    assert environment(tensor_parallel_degree=2)[CORES_VARIABLE] == "0,1,2,3|4,5,6,7"
    # What the user says stands; a single rank, or one on a device, has all cores.
    assert environment({CORES_VARIABLE: "0"}, **two)[CORES_VARIABLE] == "0"
    assert CORES_VARIABLE not in environment()
    assert CORES_VARIABLE not in environment(device_groups=(("0",), ("1",)))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert CORES_VARIABLE not in environment(**two)


def test_ranks_learn_where_they_meet_and_others_nothing() -> None:
    assert "MASTER_ADDR" not in environment()
    own = command_of(mode="mpi", mpirun="mpirun").environment
    assert (own["MASTER_ADDR"], own["MASTER_PORT"]) == ("127.0.0.1", "29400")


def test_other_nodes_get_what_the_worker_adds_but_the_token_is_not_on_the_command_line() -> None:
    nodes = {"tensor_parallel_degree": 4, "hosts": ("a", "b")}
    own = {"HF_HOME": "/models"}
    command = command_of({"X": "1"}, environment=own, mode="mpi", mpirun="mpirun", **nodes)
    words = " ".join(command.argv)
    assert "--host a:2,b:2" in words
    forwarded = {each.split()[0] for each in words.split(" -x ")[1:]}
    assert {"LMI_BACKEND_TOKEN", "HF_HOME", "PYTHONPATH", "CUDA_VISIBLE_DEVICES"} <= forwarded
    assert "X" not in forwarded
    assert command.environment["X"] == "1"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("[1,3]<stderr>: INFO ready", "rank 3: INFO ready"),
        ("[1,0]<stdout>:x", "rank 0: x"),
        ("INFO [1,3] as it is", "INFO [1,3] as it is"),
    ],
)
def test_the_tag_of_mpirun_becomes_words(line: str, shown: str) -> None:
    assert readable(line) == shown


def test_workers_on_neuron_have_cores_of_their_own() -> None:
    two = {"engine": "vllm-neuron", "tensor_parallel_degree": 4, "device_groups": ((), ())}
    made = environment(index=1, **two)
    assert made["NEURON_VISIBLE_DEVICES"] == "4-7"
    assert "NEURON_VISIBLE_DEVICES" not in environment()


@pytest.mark.parametrize(
    ("index", "inherited", "own", "expected"),
    [
        (0, {NIXL_PORT: "7000"}, {}, "7000"),
        (1, {NIXL_PORT: "7000"}, {}, "7002"),
        (2, {NIXL_PORT: "7000"}, {NIXL_PORT: "8000"}, "8004"),
        (1, {}, {}, None),
        (1, {NIXL_PORT: "tcp://10.0.0.1:5600"}, {}, "tcp://10.0.0.1:5600"),
    ],
)
def test_ports_that_are_said_are_the_first_workers(
    index: int, inherited: dict[str, str], own: dict[str, str], expected: str | None
) -> None:
    groups = (("0", "1"), ("2", "3"), ("4", "5"))
    parallel: dict[str, Any] = {"tensor_parallel_degree": 2, "device_groups": groups}
    made = environment(inherited, index, environment=own, **parallel)
    assert made.get(NIXL_PORT) == expected


def test_workers_whose_kv_blocks_travel_have_ports_of_their_own() -> None:
    config = EngineConfig(model="m", passthrough={"kv_transfer_config": "{}"})
    own, groups = {"MASTER_PORT": "29500"}, (("0",), ("1",))
    first, second = (
        environment(index=index, config=config, environment=own, device_groups=groups)
        for index in (0, 1)
    )
    assert NIXL_PORT not in first
    assert (first["MASTER_PORT"], second["MASTER_PORT"]) == ("29500", "29501")
    assert second[NIXL_PORT] == "5601"
    assert second["VLLM_MOONCAKE_BOOTSTRAP_PORT"] == "8999"
