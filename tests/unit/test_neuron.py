"""Models of LMI's tnx: on vLLM, with AWS's plugin for Neuron."""

from pathlib import Path

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.registry import create_engine
from lmi_backend.errors import ConfigurationError, OptionError
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.pool.command import CORES_VARIABLE, LaunchContext, worker_command
from lmi_backend.sizing.model_facts import read_model_facts
from tests.support.records.plans import plan_of
from tests.support.run.places import TESTS

MODEL = "option.model_id=org/m\n"
TNX = f"option.rolling_batch=tnx\n{MODEL}"


def planned(folder: Path, properties: str) -> EnginePlan:
    facts = read_model_facts(TESTS / "golden" / "ladder_one_device")
    assert facts
    return plan_of(properties, Hardware(host_memory=4 << 30), facts, folder=folder)


@pytest.mark.parametrize(
    "named", [TNX, f"option.entryPoint=djl_python.transformers_neuronx\n{MODEL}"]
)
def test_it_is_vllms(tmp_path: Path, named: str) -> None:
    plan = planned(tmp_path, f"{named}option.n_positions=2048")
    assert (plan.engine, plan.parallel.mode) == ("vllm-neuron", "python")
    arguments = plan.config.arguments
    assert (arguments["max_model_len"], arguments["max_num_seqs"]) == (2048, 256)
    assert "vllm-neuron is a platform of vLLM, and must be installed" in plan.reasons[1]
    # Its cores have memory of their own: the host's holds no cache.
    assert plan.memory is None


def test_an_interpreter_without_the_plugin_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="No module named 'vllm_neuron'"):
        create_engine("vllm-neuron", EngineConfig(model="org/m"))


def test_each_worker_has_cores_of_its_own(tmp_path: Path) -> None:
    more = "option.tensor_parallel_degree=2\nnc.minWorkers=2\nnc.maxWorkers=2\nengine=MPI"
    plan = planned(tmp_path, TNX + more)
    assert (plan.parallel.mode, plan.parallel.workers) == ("python", 2)
    assert any("engine=MPI is ignored" in note for note in plan.notes)
    for index, cores in enumerate(("0-1", "2-3")):
        context = LaunchContext(index, tmp_path, "a.sock", "t")
        variables = worker_command(plan, context, {}).environment
        assert variables["NEURON_VISIBLE_DEVICES"] == cores
        assert variables["CUDA_VISIBLE_DEVICES"] == ""
        assert CORES_VARIABLE not in variables


@pytest.mark.parametrize("name", ["quantize=static_int8", "load_in_8bit=true"])
def test_what_the_plugin_does_not_do_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match="vllm-neuron takes the quantisation of the checkpoint"):
        planned(tmp_path, f"{TNX}option.{name}")


def test_sampling_on_the_device_is_asked_for_where_the_plugin_looks(tmp_path: Path) -> None:
    asked = f'{TNX}option.on_device_generation={{"top_k": 50}}'
    plan = planned(tmp_path, asked)
    neuron = plan.config.arguments["additional_config"]["neuron_config"]
    assert neuron == {"on_device_sampling_config": {"top_k": 50}}
