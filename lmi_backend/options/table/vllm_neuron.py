"""Transformers-NeuronX's models on vLLM with AWS's plugin for Neuron.

Source: AWS's documentation of Neuron 2.32 (vllm-neuron/docs: guides/reference-configuration,
getting-started/migration-nxdi-to-vllm-neuron, design/vllm), for vllm-neuron 0.24.0.1.1.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.options.engine_spec import EngineSpec
from lmi_backend.options.kinds import BOOL, ITEMS, JSON, TEXT, float_type, whole
from lmi_backend.options.option import PREFIX, AnyOption, ArgumentRows, Option, T
from lmi_backend.options.table import neuronx, vllm

if TYPE_CHECKING:
    from lmi_backend.options.kinds import Kind


def _visible_cores(index: int, degree: int) -> dict[str, str]:
    """Return the Neuron cores of a worker; their number must be the degree."""
    first = index * degree
    return {"NEURON_VISIBLE_DEVICES": f"{first}-{first + degree - 1}" if degree > 1 else str(first)}


_ONE_WORKER: Final = "vLLM starts a process for each Neuron core by itself"

SPEC: Final = EngineSpec(
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
        core_variables=_visible_cores,
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
        name: why if why != neuronx.ONE_PROCESS else _ONE_WORKER
        for name, why in neuronx.SPEC.unused.items()
        if why != neuronx.ONE_REQUEST
    },
    utilization_option=vllm.SPEC.utilization_option,
)

_argument: Final = ArgumentRows("vllm-neuron", "vllm")

_NO_METHOD: Final = (
    "vllm-neuron takes the quantisation of the checkpoint, or neuron_config's in "
    "option.additional_config, and none by name; leave it out"
)


def _lacking(name: str, kind: Kind[T], reason: str, **more: Any) -> Option[T | None]:
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
    _lacking(
        "neuron_optimize_level",
        whole(1, 3),
        "vllm-neuron compiles with -O1 by itself; option.optimization_level=3 says -O3",
    ),
    _lacking(
        "compiled_graph_path",
        TEXT,
        "its graphs are kept where NEURON_COMPILED_ARTIFACTS in option.env says",
    ),
    _lacking(
        "context_length_estimate",
        ITEMS,
        "the lengths of prompts that are compiled stand in option.additional_config, as "
        "num_batched_tokens_buckets of neuron_config",
        env=("NEURON_CONTEXT_LENGTH_ESTIMATE",),
    ),
    *(
        _lacking(name, BOOL, "vllm-neuron decides it itself", env=env)
        for name, env in (
            ("fuse_qkv", ()),
            ("enable_mixed_precision_accumulation", ()),
            ("enable_saturate_infinity", ()),
            ("on_device_embedding", ("NEURON_ON_DEVICE_EMBEDDING",)),
            ("sequence_parallel", ("NEURON_SEQUENCE_PARALLEL",)),
        )
    ),
    _lacking("draft_model_tp_size", whole(1), "a draft has the degree of its model"),
    _lacking("draft_model_compiled_path", TEXT, "it compiles drafts where it keeps all graphs"),
    _lacking("quantize", TEXT, _NO_METHOD, status="refused"),
    _lacking("load_in_8bit", BOOL, _NO_METHOD, status="refused", harmless=(False,)),
)
