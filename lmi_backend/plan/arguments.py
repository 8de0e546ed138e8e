"""What the engine is given: its own arguments, and those of its HTTP server.

Some arguments come from the options and the degrees. Others are handed on under the engine's own
names. What only one worker can have is refused for several.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engine_config import ClientSettings, Dialect, EngineConfig
from lmi_backend.errors import PlanError
from lmi_backend.options import LmiOptions
from lmi_backend.options.argument_types import json_of, value_of
from lmi_backend.options.classification import LACKS, classify_unknown, turned
from lmi_backend.options.signature import signature_of
from lmi_backend.options.spec import NOTHING, PREFIX, AnyOption
from lmi_backend.options.table import OPTIONS, find_option, vllm
from lmi_backend.options.table import common as opt
from lmi_backend.plan.model_source import CODE_FILE, Sources, find_adapters, handler_properties
from lmi_backend.structures import StructureBounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options.spec import Implementation
    from lmi_backend.plan.engine_plan import Degrees, Explanation
    from lmi_backend.plan.hardware import Hardware


def engine_arguments(
    options: LmiOptions,
    degrees: Degrees,
    max_running: int,
    report: Explanation,
) -> dict[str, Any]:
    """Return the typed arguments under the engine's own names; two options must not contradict."""
    engine, implementation = options.choice.engine, options.choice.spec.implementation
    arguments = _Arguments(options, implementation)
    for name in options.values:
        option = find_option(name, engine)
        if option is not None:
            arguments.add(option, options[option])
    for option in OPTIONS:
        is_default = option.lmi_default is not None and not options.is_set(option)
        if not is_default or option is not find_option(option.name, engine):
            continue
        if arguments.add(option, option.lmi_default):
            name, word = option.name.removeprefix(PREFIX), str(option.lmi_default).lower()
            report.reasons.append(f"{name} {word}: the default of LMI's guide")
    arguments.tree |= _sizes(implementation, degrees, max_running)
    if implementation.finish is not None:
        implementation.finish(options, arguments.tree, report.reasons, report.ignore)
    return arguments.tree


def _sizes(implementation: Implementation, degrees: Degrees, max_running: int) -> dict[str, int]:
    """Return what the plan decided, under the engine's own names."""
    sizes: dict[str, int] = {}
    if implementation.takes_degrees:
        sizes["tensor_parallel_size"] = degrees.tensor
        sizes["pipeline_parallel_size"] = degrees.pipeline
    sizes[implementation.running] = max_running
    memory = degrees.memory
    if implementation.cpu_cache and memory and not memory.overhead:
        block_size, num_blocks = implementation.cpu_cache
        sizes |= {block_size: memory.block_size, num_blocks: memory.num_blocks}
    return sizes


class _Arguments:
    """Arguments as a tree: a dot in an argument's name goes into an object."""

    def __init__(self, options: LmiOptions, implementation: Implementation) -> None:
        self.options = options
        self.tree: dict[str, Any] = {}
        self._implementation = implementation
        self._set_by: dict[tuple[str, ...], AnyOption] = {}

    def add(self, option: AnyOption, value: Any) -> bool:
        """Add an option's argument; return whether it has one."""
        path = option.argument_of(self._implementation)
        argument = option.convert(value)
        if not path or argument is NOTHING:
            return False
        names = path.split(".")
        if len(names) > 1 and names[0] in self.options.passthrough:
            raise self.options.error(option, f"belongs into {PREFIX}{names[0]}, which is set too")
        if isinstance(argument, dict):
            self.tree.setdefault(path, {})
            for key, item in argument.items():
                self._set((*names, key), item, option)
        else:
            self._set(tuple(names), argument, option)
        return True

    def _set(self, names: tuple[str, ...], value: Any, option: AnyOption) -> None:
        parent = self.tree
        for name in names[:-1]:
            parent = parent.setdefault(name, {})
        earlier = self._set_by.setdefault(names, option)
        if parent.setdefault(names[-1], value) != value:
            problem = f"contradicts {earlier.name}: both set {'.'.join(names)}"
            raise self.options.error(option, problem)


EVENTS: Final = "kv_events_config"
TRANSFERS: Final = ("kv_transfer_config", "ec_transfer_config")


def explain_ports(passthrough: Mapping[str, str], workers: int, report: Explanation) -> None:
    """Say which ports several workers share out, and refuse one that they cannot."""
    if workers == 1:
        return
    for option in (name for name in TRANSFERS if name in passthrough):
        report.reasons.append(f"ports of option.{option}: each worker has its own, by its number")
    events = json_of(passthrough.get(EVENTS, ""))
    if isinstance(events, dict) and events.get("enable_kv_cache_events"):
        raise PlanError(
            f"option.{EVENTS}: {workers} workers cannot publish at one port; accepted: one worker "
            "(gpu.maxWorkers=1), whose copies (option.data_parallel_size) vLLM gives a port each"
        )


_ON = ("true", "1")
_GPUS_ALONE: Final = {
    "enable_cumem_allocator": _ON,
    "enable_eplb": _ON,
    "enable_mamba_cache_stochastic_rounding": _ON,
    # These need its second model runner, which needs OpenAI's Triton.
    **dict.fromkeys(("enable_batch_sharded_sampling", "enable_return_routed_experts"), _ON),
    **dict.fromkeys(("enable_trace_replay", "return_sampling_mask"), _ON),
    "prefill_context_parallel_size": ("2", "4", "8"),
    "kda_prefill_backend": ("flashkda", "fused"),
}
"""Argument of vLLM to the texts at which it does not start on a CPU."""


def passed_on(
    options: LmiOptions, python: str, hardware: Hardware, report: Explanation
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return what the engine reads as text, and the arguments of its own HTTP server.

    Raises:
        OptionError: neither has such an argument, or it does not take the text, or not here.
    """
    signature = signature_of(options, python)
    texts: dict[str, str] = {}
    served: dict[str, Any] = {}
    for name, status in classify_unknown(options, python).items():
        setting = options.passthrough[name]
        if status.word == "refused":
            raise setting.error(status.detail)
        if not hardware.devices and setting.value.lower() in _GPUS_ALONE.get(name, ()):
            raise setting.error("is refused by vLLM on a CPU", "another value, or GPUs")
        if status.word != "passed":
            report.notes.append(f"{setting} is ignored: {status.detail}")
            continue
        if LACKS in status.detail:
            report.notes.append(f"{setting} is passed on as {status.detail}")
        target, text = turned(signature, name, setting.value)
        if target != name and target in options.passthrough:
            problem = f"contradicts {PREFIX}{target}: both set it"
            raise setting.error(problem)
        if signature and target in signature.server and target not in signature.arguments:
            served[target] = value_of(signature.server[target].type, text)
        else:
            texts[target] = text
    return texts, served


def engine_config(
    options: LmiOptions,
    sources: Sources,
    arguments: dict[str, Any],
    passthrough: dict[str, str],
    report: Explanation,
    *,
    served: Mapping[str, Any] = MappingProxyType({}),
) -> EngineConfig:
    """Return what the engine is built from; `served` are its HTTP server's other arguments."""
    custom, adapters = sources.custom, find_adapters(options)
    coded = [name for name, folder in adapters.items() if (Path(folder) / CODE_FILE).is_file()]
    if coded and custom is None:
        report.reasons.append(f"code of the model's adapters is run: {', '.join(coded)}")
    runs_code = custom is not None or bool(coded)
    return EngineConfig(
        model=sources.model,
        clients=ClientSettings(
            dialect=_dialect(options, report),
            output_formatter=options[opt.OUTPUT_FORMATTER],
            openai_lines=options[opt.OPENAI_STREAMS] == "lines",
            tgi_compat=options[opt.TGI_COMPAT],
            is_embedding=options[opt.TASK] in opt.EMBEDDING,
            normalize=options[vllm.NORMALIZE],
            stop_by_id=options[opt.STOP_BY_ID],
        ),
        arguments=arguments,
        passthrough=passthrough,
        custom_file=custom.file if custom else "",
        runs_code=runs_code,
        sends_ids=options[opt.MIGRATION_TIMEOUT] != 0 and options[opt.MIGRATION_LIMIT] > 0,
        custom_handler=options[opt.HANDLER],
        properties=handler_properties(options) if runs_code else {},
        front_end={**served, **_front_end(options)},
        adapters=adapters,
        fast_paths=options[vllm.FAST_PATHS],
        structure_bounds=StructureBounds(
            size=options[opt.MAX_STRUCTURE_SIZE],
            choices=options[opt.MAX_STRUCTURE_CHOICES],
            depth=options[opt.MAX_STRUCTURE_DEPTH],
            repeats=options[opt.MAX_STRUCTURE_REPEATS],
        ),
    )


def _front_end(options: LmiOptions) -> dict[str, Any]:
    arguments = {
        option.plan_field.removeprefix(vllm.FRONT_END): options[option]
        for option in OPTIONS
        if option.plan_field.startswith(vllm.FRONT_END) and options.is_set(option)
    }
    template: str = arguments.get("chat_template", "")
    # A template is no path, and may be longer than one can be: pathlib raises OSError then.
    if template and os.path.isfile(file := options.folder / template):
        arguments["chat_template"] = str(file.resolve())
    elif template and "{" not in template:
        problem = f"is neither a template nor a file (looked at {file})"
        raise options.error(vllm.CHAT_TEMPLATE, problem)
    if arguments.get("enable_auto_tool_choice") and not arguments.get("tool_call_parser"):
        raise options.error(vllm.ENABLE_AUTO_TOOL_CHOICE, "needs option.tool_call_parser too")
    return arguments


def _dialect(options: LmiOptions, report: Explanation) -> Dialect:
    chosen = options[opt.LMI_DIALECT]
    if chosen != "auto":
        return "legacy" if chosen == "legacy" else "async"
    if options.is_set(opt.ASYNC_MODE):
        word = "async" if options[opt.ASYNC_MODE] else "not async"
        report.reasons.append(f"LMI dialect: async_mode is {word}")
        return "async" if options[opt.ASYNC_MODE] else "legacy"
    names_engine = options[opt.ROLLING_BATCH] not in ("auto", "disable")
    is_legacy = names_engine or options.is_set(opt.OUTPUT_FORMATTER) or options[opt.TGI_COMPAT]
    dialect: Dialect = "legacy" if is_legacy else "async"
    report.reasons.append(f"LMI dialect {dialect}: rolling_batch is {options[opt.ROLLING_BATCH]}")
    return dialect
