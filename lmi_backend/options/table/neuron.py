"""Transformers-NeuronX, which LMI has retired but still documents.

vLLM runs it here, with AWS's plugin for Neuron. Sources: LMI's user guide of 0.34. AWS's
documentation of Neuron 2.32 (vllm-neuron/docs: guides/reference-configuration,
getting-started/migration-nxdi-to-vllm-neuron, design/vllm), for vllm-neuron 0.24.0.1.1.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lmi_backend.options.kinds import JSON, float_type, whole
from lmi_backend.options.spec import (
    AnyOption,
    ArgumentRows,
    EngineSpec,
)
from lmi_backend.options.table import vllm


def _visible_cores(index: int, degree: int) -> dict[str, str]:
    """Return the Neuron cores of a worker; their number must be the degree."""
    first = index * degree
    return {"NEURON_VISIBLE_DEVICES": f"{first}-{first + degree - 1}" if degree > 1 else str(first)}


_ONE_WORKER: Final = "vLLM starts a process for each Neuron core by itself"

SPEC: Final = EngineSpec(
    name="vllm-neuron",
    title="vLLM on Neuron",
    order=5,
    implementation=replace(
        vllm.SPEC.implementation,
        variant="neuron",
        title="vLLM",
        library="vllm_neuron",
        device="nc",
        one_process=_ONE_WORKER,
        pipeline_modes=frozenset(),
        core_variables=_visible_cores,
        # The plugin sizes the cache by the memory of its cores, which is not known here.
        counts_memory_as_vllm=False,
        takes_memory=False,
        node="",
        image="",
        ray_argument="",
        cpu_pipeline="",
    ),
    why_implementation="AWS's plugin vllm-neuron is a platform of vLLM, and must be installed",
    scopes=("vllm", *vllm.SPEC.scopes),
    rolling_batch="tnx",
    entry_points=("djl_python.transformers_neuronx",),
    unused={
        **dict.fromkeys(
            ("engine", "option.mpi_mode", "option.mpi_hostfile", "option.mpi_options"), _ONE_WORKER
        ),
        **{
            f"{device}.{bound}": "it runs on Neuron cores; use the nc. names"
            for device in ("gpu", "cpu")
            for bound in ("minWorkers", "maxWorkers")
        },
    },
    utilization_option=vllm.SPEC.utilization_option,
)

_argument: Final = ArgumentRows("vllm-neuron", "vllm")

ROWS: Final[tuple[AnyOption, ...]] = (
    _argument(
        "n_positions", whole(1), "Longest prompt plus answer, in tokens.", to="max_model_len"
    ),
    _argument("amp", float_type(), "Older name of option.dtype.", to="dtype"),
    _argument(
        "on_device_generation",
        JSON,
        "Sample on the device: temperature, top_k, top_p or all_greedy.",
        to="additional_config.neuron_config.on_device_sampling_config",
        env=("NEURON_ON_DEV_GENERATION",),
    ),
)
