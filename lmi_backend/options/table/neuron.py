"""Transformers-NeuronX, which LMI has retired but still documents.

optimum-neuron runs it here, or vLLM with AWS's plugin for Neuron. Sources: LMI's user guide of
0.34. AWS's documentation of Neuron 2.32 (vllm-neuron/docs: guides/reference-configuration,
getting-started/migration-nxdi-to-vllm-neuron, design/vllm), for vllm-neuron 0.24.0.1.1.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lmi_backend.options.kinds import BOOL, JSON, TEXT, float_type, whole
from lmi_backend.options.spec import (
    AnyOption,
    ArgumentRows,
    Cache,
    EngineSpec,
    Implementation,
    OnPlugin,
    Sizes,
)
from lmi_backend.options.table import vllm


def _visible_cores(index: int, degree: int) -> dict[str, str]:
    """Return the Neuron cores of a worker, and two threads for each, as LMI has it."""
    first = index * degree
    return {
        "NEURON_RT_VISIBLE_CORES": f"{first}-{first + degree - 1}",
        "OMP_NUM_THREADS": str(2 * degree),
    }


ONE_PROCESS: Final = "one process drives all Neuron cores"
ONE_REQUEST: Final = "optimum-neuron's generate has no continuous batch"
_OTHER_DEVICES: Final = "it runs on Neuron cores; use the nc. names"

SPEC: Final = EngineSpec(
    name="neuronx",
    title="NeuronX",
    order=5,
    implementation=Implementation(
        name="neuronx",
        title="NeuronX",
        engine="lmi_backend.engines.transformers.neuronx:NeuronxEngine",
        library="optimum.neuron",
        sizes=Sizes("", pipeline=""),
        arguments={
            "option.trust_remote_code": "trust_remote_code",
            "option.dtype": "dtype",
        },
        device="nc",
        one_process=ONE_PROCESS,
        one_request=ONE_REQUEST,
        pipeline_modes=frozenset(),
        cache=Cache(
            "Neuron's compiler",
            "NEURON_COMPILE_CACHE_URL",
            "/var/tmp/neuron-compile-cache",  # noqa: S108  its compiler's default
        ),
        core_variables=_visible_cores,
    ),
    on_plugin=OnPlugin(
        engine="vllm-neuron",
        group="vllm.platform_plugins",
        name="neuron",
        why="AWS's way to serve on Trn2 and Trn3; for Inf2 and Trn1 name an interpreter without it",
        why_not=(
            "the workers' interpreter has no plugin of vLLM for Neuron: optimum-neuron runs it, as "
            "on Inf2 and Trn1; for Trn2 and Trn3 install AWS's vllm-neuron there"
        ),
        list_variable="VLLM_PLUGINS",
    ),
    rolling_batch="tnx",
    entry_points=("djl_python.transformers_neuronx",),
    unused={
        **dict.fromkeys(("option.max_rolling_batch_size", "batch_size"), ONE_REQUEST),
        **dict.fromkeys(
            ("engine", "option.mpi_mode", "option.mpi_hostfile", "option.mpi_options"), ONE_PROCESS
        ),
        **{
            f"{device}.{bound}": _OTHER_DEVICES
            for device in ("gpu", "cpu")
            for bound in ("minWorkers", "maxWorkers")
        },
    },
)

_argument: Final = ArgumentRows("neuronx", "neuronx")
_compiler: Final = ArgumentRows("neuronx", "neuronx", "compiler.")

ROWS: Final[tuple[AnyOption, ...]] = (
    _argument(
        "n_positions", whole(1), "Longest prompt plus answer, in tokens.", to="sequence_length"
    ),
    _compiler("neuron_optimize_level", whole(1, 3), "Compiler's -O level.", to="optlevel"),
    _compiler(
        "enable_mixed_precision_accumulation",
        BOOL,
        "Accumulate in float32.",
        to="mixed_precision_accumulation",
    ),
    _compiler("enable_saturate_infinity", BOOL, "Largest value, not inf.", to="saturate_infinity"),
    _argument(
        "compiled_graph_path", TEXT, "Where compiled graphs are kept.", to="compile_cache_url"
    ),
    _argument("fuse_qkv", BOOL, "Fuse the three projections of attention.", to="fused_qkv"),
    _argument(
        "on_device_generation",
        JSON,
        "Sample on the device, as each request says; penalties and seeds are refused then.",
        to="on_device_sampling",
        env=("NEURON_ON_DEV_GENERATION",),
    ),
    _argument("amp", float_type(), "Older name of option.dtype.", to="dtype"),
)


def _vllms_cores(index: int, degree: int) -> dict[str, str]:
    """Return the Neuron cores of a worker; their number must be the degree."""
    first = index * degree
    return {"NEURON_VISIBLE_DEVICES": f"{first}-{first + degree - 1}" if degree > 1 else str(first)}


_ONE_WORKER: Final = "vLLM starts a process for each Neuron core by itself"

VLLM_NEURON: Final = EngineSpec(
    name="vllm-neuron",
    title="vLLM on Neuron",
    order=6,
    implementation=replace(
        vllm.SPEC.implementation,
        variant="neuron",
        title="vLLM",
        device="nc",
        one_process=_ONE_WORKER,
        pipeline_modes=frozenset(),
        core_variables=_vllms_cores,
        # The plugin sizes the cache by the memory of its cores, which is not known here.
        counts_memory_as_vllm=False,
        takes_memory=False,
        node="",
        image="",
        ray_argument="",
        cpu_pipeline="",
    ),
    why_implementation="AWS's plugin is a platform of vLLM",
    scopes=("vllm", *vllm.SPEC.scopes),
    unused={
        name: why if why != ONE_PROCESS else _ONE_WORKER
        for name, why in SPEC.unused.items()
        if why != ONE_REQUEST
    },
    utilization_option=vllm.SPEC.utilization_option,
)

_of_vllm: Final = ArgumentRows("vllm-neuron", "vllm")

VLLM_ROWS: Final[tuple[AnyOption, ...]] = (
    _of_vllm("n_positions", whole(1), "Longest prompt plus answer, in tokens.", to="max_model_len"),
    _of_vllm("amp", float_type(), "Older name of option.dtype.", to="dtype"),
    _of_vllm(
        "on_device_generation",
        JSON,
        "Sample on the device: temperature, top_k, top_p or all_greedy.",
        to="additional_config.neuron_config.on_device_sampling_config",
        env=("NEURON_ON_DEV_GENERATION",),
    ),
)
