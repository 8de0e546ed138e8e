"""Transformers-NeuronX, which LMI has retired but still documents.

optimum-neuron runs it here, or vLLM with AWS's plugin for Neuron. Sources: LMI's user guide of
0.34. AWS's documentation of Neuron 2.32 (vllm-neuron/docs: guides/reference-configuration,
getting-started/migration-nxdi-to-vllm-neuron, design/vllm), for vllm-neuron 0.24.0.1.1.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from lmi_backend.options.kinds import BOOL, ITEMS, JSON, TEXT, choice, float_type, whole
from lmi_backend.options.spec import (
    PREFIX,
    AnyOption,
    ArgumentRows,
    Cache,
    EngineSpec,
    Implementation,
    OnPlugin,
    Option,
    Sizes,
    T,
)
from lmi_backend.options.table import vllm

if TYPE_CHECKING:
    from lmi_backend.options.kinds import Kind


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

_NO_DRAFT: Final = "optimum-neuron drafts no tokens; answers are the same without, but slower"
_NO_INT8: Final = (
    "optimum-neuron has no weights in int8; leave it out, and choose a degree "
    "(option.tensor_parallel_degree) by which they fit as option.dtype says"
)


def _lacking(
    name: str,
    kind: Kind[T],
    reason: str,
    *,
    status: Literal["ignored", "refused"] = "ignored",
    **more: Any,
) -> Option[T | None]:
    """Return a row of an option that LMI's library had and optimum-neuron 0.4.5 has not."""
    return Option(
        name=PREFIX + name,
        kind=kind,
        default=None,
        scope="neuronx",
        help=f"{status.capitalize()}: {reason}.",
        status=status,
        reason=reason,
        **more,
    )


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
    _lacking("speculative_draft_model", TEXT, _NO_DRAFT),
    _lacking("speculative_length", whole(1), _NO_DRAFT),
    _lacking("draft_model_tp_size", whole(1), _NO_DRAFT),
    _lacking("draft_model_compiled_path", TEXT, _NO_DRAFT),
    _lacking(
        "context_length_estimate",
        ITEMS,
        "optimum-neuron compiles one length of prompt, option.n_positions",
        env=("NEURON_CONTEXT_LENGTH_ESTIMATE",),
    ),
    _lacking(
        "on_device_embedding",
        BOOL,
        "optimum-neuron always does",
        env=("NEURON_ON_DEVICE_EMBEDDING",),
    ),
    _lacking(
        "sequence_parallel",
        BOOL,
        "optimum-neuron has nothing like it where a model answers",
        env=("NEURON_SEQUENCE_PARALLEL",),
    ),
    _lacking("quantize", choice("static_int8"), _NO_INT8, status="refused"),
    _lacking(
        "load_in_8bit",
        BOOL,
        _NO_INT8,
        status="refused",
        harmless=(False,),
    ),
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

_NO_METHOD: Final = (
    "vllm-neuron takes the quantisation of the checkpoint, or neuron_config's in "
    "option.additional_config, and none by name; leave it out"
)


def _lacking_in_vllm(name: str, kind: Kind[T], reason: str, **more: Any) -> Option[T | None]:
    """Return a row of an option that LMI's library had and vllm-neuron has not."""
    status = more.setdefault("status", "ignored")
    help_text = f"{status.capitalize()}: {reason}."
    return Option(
        name=PREFIX + name,
        kind=kind,
        default=None,
        scope="vllm-neuron",
        help=help_text,
        reason=reason,
        **more,
    )


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
    _lacking_in_vllm(
        "neuron_optimize_level",
        whole(1, 3),
        "vllm-neuron compiles with -O1 by itself; option.optimization_level=3 says -O3",
    ),
    _lacking_in_vllm(
        "compiled_graph_path",
        TEXT,
        "its graphs are kept where NEURON_COMPILED_ARTIFACTS in option.env says",
    ),
    _lacking_in_vllm(
        "context_length_estimate",
        ITEMS,
        "the lengths of prompts that are compiled stand in option.additional_config, as "
        "num_batched_tokens_buckets of neuron_config",
        env=("NEURON_CONTEXT_LENGTH_ESTIMATE",),
    ),
    *(
        _lacking_in_vllm(name, BOOL, "vllm-neuron decides it itself", env=env)
        for name, env in (
            ("fuse_qkv", ()),
            ("enable_mixed_precision_accumulation", ()),
            ("enable_saturate_infinity", ()),
            ("on_device_embedding", ("NEURON_ON_DEVICE_EMBEDDING",)),
            ("sequence_parallel", ("NEURON_SEQUENCE_PARALLEL",)),
        )
    ),
    _lacking_in_vllm("draft_model_tp_size", whole(1), "a draft has the degree of its model"),
    _lacking_in_vllm(
        "draft_model_compiled_path", TEXT, "it compiles drafts where it keeps all graphs"
    ),
    _lacking_in_vllm("quantize", TEXT, _NO_METHOD, status="refused"),
    _lacking_in_vllm("load_in_8bit", BOOL, _NO_METHOD, status="refused", harmless=(False,)),
)
