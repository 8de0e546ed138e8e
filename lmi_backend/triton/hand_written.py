"""Refuse what a config.pbtxt written by hand sets, and nothing here does.

Otherwise Triton refuses some of it with a traceback, ignores more of it in silence, and crashes of
two values. Its JSON of a configuration has each field; what nobody wrote has its default.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.errors import PlanError
from lmi_backend.printable import cut, printable
from lmi_backend.repository.variants import CLIENTS, MAIN, VARIANTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.repository.tensors import Tensor
    from lmi_backend.repository.variants import Variant

_LONGEST_VALUE: Final = 200
_OPTION: Final = "option."


class _Rule(NamedTuple):
    field: str
    accepts: Callable[[Any, Variant], bool]
    accepted: str
    """May name `{batch}` and `{decoupled}`, what they are in this variant."""


def checked_variant(config: Mapping[str, Any]) -> Variant:
    """Return which variant of a model a configuration is, if no field of it is wrong.

    Raises:
        PlanError: names each field that cannot be so, with what is accepted.
    """
    parameter: dict[str, str] = config.get("parameters", {}).get(CLIENTS, {})
    if (clients := parameter.get("string_value", MAIN.clients)) not in VARIANTS:
        problem = f"parameters {CLIENTS}: {_text(clients)}; accepted: {', '.join(VARIANTS)}"
        raise PlanError(f"config.pbtxt: {problem}")
    variant = VARIANTS[clients].of_model(config["name"])
    if problems := [*_problems(config, variant)]:
        raise PlanError(*(f"config.pbtxt: {problem}" for problem in problems))
    return variant


def _problems(config: Mapping[str, Any], variant: Variant) -> Iterator[str]:
    own = {"batch": variant.max_batch_size, "decoupled": str(variant.is_decoupled).lower()}
    for rule in _RULES:
        value = config.get(rule.field)
        if value and not rule.accepts(value, variant):
            yield f"{rule.field}: {_text(value)}; accepted: {rule.accepted.format(**own)}"
    yield from _copies(config.get("instance_group", []))
    for field, tensors in (("input", variant.inputs), ("output", variant.outputs)):
        for tensor in config.get(field, []):
            if problem := _problem_of(tensor, {each.name: each for each in tensors}, field):
                yield f"{field} {_text(tensor.get('name', ''))}: {problem}"
    for name in config.get("parameters", {}):
        if name.startswith(_OPTION):
            yield f"parameters {_text(name)}: accepted: options stand in serving.properties"


def _copies(groups: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Say where Triton would start a model twice: each start is a whole engine.

    It happens on a GPU server when no config.pbtxt names an instance group, and auto-complete
    cannot set one.
    """
    copies = sum(group.get("count", 1) * max(1, len(group.get("gpus", []))) for group in groups)
    if copies > 1:
        yield (
            f"instance_group: Triton would start this model {copies} times; accepted: one instance "
            "(instance_group [{ kind: KIND_MODEL, count: 1 }], which `lmi-backend convert` "
            "writes); replicas are set with minWorkers in serving.properties"
        )


def _is_plain_group(groups: list[dict[str, Any]], _: Variant) -> bool:
    """Tell whether groups set only a start; Triton itself adds the only GPU of a server."""
    return not any(
        group.get("passive")
        or group.get("rate_limiter")
        or group.get("secondary_devices")
        or group.get("gpus", [])[:1] not in ([], [0])
        for group in groups
    )


def _is_plain_optimization(value: dict[str, Any], _: Variant) -> bool:
    left = {name: each for name, each in value.items() if "pinned_memory" not in name}
    return left.pop("priority", "PRIORITY_DEFAULT") == "PRIORITY_DEFAULT" and not any(left.values())


def _is_one_version(value: dict[str, Any], _: Variant) -> bool:
    latest = value.get("latest", {}).get("num_versions", 1)
    return "all" not in value and latest <= 1 >= len(value.get("specific", {}).get("versions", []))


def _is_warm(samples: list[dict[str, Any]], variant: Variant) -> bool:
    """Tell whether samples have a prompt, and all from files: Triton may crash when one fails."""
    names = {each.name for each in variant.inputs}
    return all(
        sample.get("batch_size")
        and names.issuperset(inputs := sample.get("inputs", {}))
        and all(value.get("input_data_file") for value in inputs.values())
        and any(value.get("data_type") == "TYPE_STRING" for value in inputs.values())
        for sample in samples
    )


def _problem_of(tensor: dict[str, Any], tensors: Mapping[str, Tensor], field: str) -> str:
    """Return what is wrong with a tensor that somebody wrote; empty if it is ours."""
    ours = tensors.get(tensor.get("name", ""))
    if ours is None:
        return f"is not read here; accepted: {', '.join(tensors)}"
    wanted: dict[str, Any] = {"name": ours.name, "data_type": ours.data_type, "dims": ours.shape}
    given = {name: value for name, value in tensor.items() if value not in _UNSET}
    if field == "input":
        wanted["optional"] = True
        given.setdefault("optional", False)
    given = {"data_type": ours.data_type, "dims": ours.shape} | given
    # What counts is numbers, which Triton writes as texts where they are of 64 bits.
    given["dims"] = [int(each) for each in given["dims"]]
    wrong = {name: value for name, value in given.items() if wanted.get(name) != value}
    if not wrong:
        return ""
    accepted = {name: wanted[name] for name in wrong if name in wanted}
    return f"{_text(wrong)}; accepted: {_text(accepted) if accepted else 'without it'}"


_UNSET: Final[tuple[Any, ...]] = (None, "", [], {}, False, "TYPE_INVALID", "FORMAT_NONE")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if each} or value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(printable(text), _LONGEST_VALUE)


def _never(*_: object) -> bool:
    return False


_RULES: Final = (
    _Rule(
        "max_batch_size",
        lambda value, variant: value == variant.max_batch_size,
        "{batch}; the engine batches by itself, and option.max_rolling_batch_size in "
        "serving.properties is its bound",
    ),
    _Rule(
        "model_transaction_policy",
        lambda value, variant: bool(value.get("decoupled")) is variant.is_decoupled,
        "decoupled: {decoupled}; `--clients infer` adds a model with one response a request",
    ),
    _Rule(
        "dynamic_batching",
        lambda value, _: not any(value.values()),
        "none, or {{ }}; the engine batches by itself, and job_queue_size bounds its queue",
    ),
    _Rule("sequence_batching", _never, "none; a request has its whole conversation"),
    _Rule("ensemble_scheduling", _never, "none; an ensemble is a model of its own"),
    _Rule(
        "instance_group",
        _is_plain_group,
        "one instance without passive, rate_limiter and devices; load_on_devices in "
        "serving.properties names the GPUs",
    ),
    _Rule("version_policy", _is_one_version, "one version; each would start a whole engine"),
    _Rule(
        "optimization",
        _is_plain_optimization,
        "pinned memory only; what the engine does is set in serving.properties",
    ),
    _Rule(
        "response_cache",
        lambda value, variant: not (value.get("enable") and variant.is_decoupled),
        "enable: false; Triton keeps no answers of a decoupled model",
    ),
    _Rule(
        "model_warmup",
        _is_warm,
        "a batch_size of 1, and inputs in an input_data_file, one of them a text; Triton may crash "
        "when a sample fails",
    ),
    *(
        _Rule(field, _never, "none; the Python backend does not read it")
        for field in ("batch_input", "batch_output", "cc_model_filenames", "model_operations")
    ),
)


def complete(config: Any) -> Any:
    """Add tensors and decoupled mode to Triton's ModelConfig, for a folder without all of it.

    This runs before `initialize`, in an interpreter that Triton discards. Triton takes back inputs,
    outputs, max_batch_size, the scheduler and the transaction policy; never an instance group.

    Raises:
        PlanError: a file says something else.
    """
    variant = checked_variant(config.as_dict())
    config.set_max_batch_size(variant.max_batch_size)
    config.set_model_transaction_policy({"decoupled": variant.is_decoupled})
    for tensor in variant.inputs:
        config.add_input(_field(tensor) | {"optional": True})
    for tensor in variant.outputs:
        config.add_output(_field(tensor))
    return config


def _field(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": tensor.data_type, "dims": tensor.shape}
