"""Options that change what a device holds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lmi_backend.options.kinds import MOST_DEVICES
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import find_option, vllm
from lmi_backend.plan.memory_fields import is_uncounted, is_uncounted_key
from lmi_backend.sizing.adapters import AdapterSlots
from lmi_backend.sizing.step import NEWEST
from lmi_backend.sizing.weights import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.options.spec import Option
    from lmi_backend.sizing.model_facts import ModelFacts
    from lmi_backend.sizing.step import Release

_CONTEXT: Final = ("prefill_context_parallel_size", "decode_context_parallel_size")
_DIGITS: Final = 12
_LARGER_SHARE: Final[Release] = (0, 20)
_OLDER_SHARE: Final = 0.9
"""The release of vLLM that raised its default for `gpu_memory_utilization`, and what it was."""
_PARTITION: Final = "VLLM_PP_LAYER_PARTITION"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_SIZES: Final = "cudagraph_capture_sizes"
_TEXT_ALONE: Final = "language_model_only"
_OVERRIDES: Final = "hf_overrides"
_SPECULATION: Final = "speculative_config"

_NOTHING: Final = frozenset({"", "none", "null", "auto", "false", "0", "{}", "[]"})
"""Values without effect, for any argument."""


def utilization(options: LmiOptions, release: Release) -> float:
    """Return the share of a device's memory that an engine takes, of a release of vLLM."""
    spec = options.choice.spec
    is_older = spec.implementation.counts_memory_as_vllm and release < _LARGER_SHARE
    asked = given_number(options, spec.utilization_option)
    return float(asked or (_OLDER_SHARE if is_older else spec.utilization))


def given_number(options: LmiOptions, name: str) -> float | None:
    """Return what an option of the engine says, else LMI's default; None if neither does."""
    option: Option[float | None] | None = find_option(name, options.choice.engine)
    if option is None:
        return None
    return options.values.get(name) or option.lmi_default


def layer_partition(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return the layers of each stage, as vLLM's variable has them; empty if it does not."""
    parts = [each.strip() for each in environment.get(_PARTITION, "").split(",")]
    is_list = all(_NUMBER.fullmatch(each) for each in parts)
    return tuple(map(int, parts)) if is_list else ()


def adapter_slots(options: LmiOptions) -> AdapterSlots | None:
    """Return what vLLM keeps free for adapters; None where none are served."""
    is_vllm = options.choice.spec.implementation.counts_memory_as_vllm
    if not is_vllm or not options[vllm.ENABLE_LORA]:
        return None
    return AdapterSlots(
        count=options[vllm.MAX_LORAS],
        rank=options[vllm.MAX_LORA_RANK],
        bytes_each=DTYPE_BYTES.get(str(options[vllm.LORA_DTYPE]), 2),
    )


def context_ranks(options: LmiOptions) -> tuple[int, int]:
    """Return the ranks that share a prompt's computation, and those that share its cache.

    The former are added to those of tensor parallelism, the latter are among them.
    """
    if not options.choice.spec.implementation.counts_memory_as_vllm:
        return 1, 1
    texts = (options.passthrough.get(name) for name in _CONTEXT)
    values = (each.value.strip() if each else "" for each in texts)
    prefill, decode = (
        min(int(value[:_DIGITS]), MOST_DEVICES) if value.isascii() and value.isdecimal() else 1
        for value in values
    )
    return max(1, prefill), max(1, decode)


def copies(options: LmiOptions) -> int:
    """Return how often the devices of a worker have the layers, but each expert only once."""
    return options[vllm.DATA_PARALLEL_SIZE] * context_ranks(options)[0]


def without_encoders(options: LmiOptions, facts: ModelFacts) -> ModelFacts:
    """Return the model without the encoders that vLLM is told to leave out.

    It leaves one out if the limit is 0 for everything that the encoder reads.
    """
    is_vllm = options.choice.spec.implementation.counts_memory_as_vllm
    alone = options.passthrough.get(_TEXT_ALONE)
    limits = options[vllm.LIMIT_MM_PER_PROMPT]
    is_alone = alone is not None and alone.value.strip().lower() == "true"
    sounds = facts.sound_parameters
    out = 0
    if is_alone or all(limits.get(kind) == 0 for kind in ("image", "video")):
        out += facts.vision_parameters - sounds
    if is_alone or limits.get("audio") == 0:
        out, sounds = out + sounds, 0
    if not (is_vllm and out):
        return facts
    return replace(
        facts,
        vision_parameters=facts.vision_parameters - out,
        sound_parameters=sounds,
        weight_bytes=max(1, facts.weight_bytes - out * DTYPE_BYTES.get(facts.dtype, 2)),
    )


def captured_sizes(options: LmiOptions) -> tuple[int, ...]:
    """Return the sizes of batches whose CUDA graphs are captured; empty if nobody says."""
    asked = options.passthrough.get(_SIZES)
    sizes = options[vllm.CUDA_GRAPH_SIZES]
    if asked:
        words = re.split(r"[\s,]+", asked.value.strip().strip("[]").strip())
        sizes = [int(word[:_DIGITS]) for word in words if word.isascii() and word.isdecimal()]
    return tuple(dict.fromkeys(sizes))


def config_overrides(options: LmiOptions) -> Mapping[str, object] | None:
    """Return what vLLM is told to take instead of fields in config.json.

    None if it is something else than an object, such as the name of a function.
    """
    asked = options.passthrough.get(_OVERRIDES)
    if asked is None or not options.choice.spec.implementation.counts_memory_as_vllm:
        return {}
    try:
        found = json.loads(asked.value or "{}")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def uncounted_arguments(options: LmiOptions, release: Release) -> tuple[str, ...]:
    """Return the arguments that change the engine's memory and are not counted.

    Of a release that is newer than our record, so are arguments that the record does not know.
    """
    known = recorded_signature(options.choice.spec.implementation.name)
    names = {**known.arguments, **known.server} if known else {}
    found = []
    for name, text in _given(options):
        is_new = release > NEWEST and name not in names and "." not in name
        default = names[name].default.strip("'").lower() if name in names else ""
        is_given = text.strip().lower() not in _NOTHING | {default}
        is_unread = name == _OVERRIDES and config_overrides(options) is None
        if is_given and (is_new or is_unread or _is_uncounted(name)):
            found.append(name)
    return tuple(dict.fromkeys(found))


def _is_uncounted(name: str) -> bool:
    first, _, key = name.partition(".")
    return is_uncounted_key(key) if first == _SPECULATION else is_uncounted(first)


def _given(options: LmiOptions) -> Iterator[tuple[str, str]]:
    """Yield each argument of the engine that an option sets, and what it says."""
    implementation = options.choice.spec.implementation
    for name, value in options.values.items():
        option = find_option(name, options.choice.engine)
        argument = option.argument_of(implementation) if option else ""
        if argument == _SPECULATION:
            yield from ((f"{argument}.{key}", str(each)) for key, each in (value or {}).items())
        elif argument:
            yield argument, str(value)
    for name, setting in options.passthrough.items():
        yield name, setting.value
