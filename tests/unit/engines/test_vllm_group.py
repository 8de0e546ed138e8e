"""vLLM's arguments of an MPI rank."""

from lmi_backend.engines.vllm.group import group_arguments, take_device

RANK = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29400",
}


def test_outside_a_group_there_are_none() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert group_arguments(environment) == {}
    take_device(environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_a_rank_is_a_node_to_vllm() -> None:
    assert group_arguments(RANK) == {
        "distributed_executor_backend": "mp",
        "nnodes": 4,
        "node_rank": 3,
        "master_addr": "10.0.0.1",
        "master_port": 29400,
    }


def test_a_rank_takes_its_own_device_of_its_node() -> None:
    environment = RANK | {"CUDA_VISIBLE_DEVICES": "4,6"}
    take_device(environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == "6"
    on_the_cpu = RANK | {"CUDA_VISIBLE_DEVICES": ""}
    take_device(on_the_cpu)
    assert on_the_cpu["CUDA_VISIBLE_DEVICES"] == ""
