"""What the engine is built from, and how the model's clients are answered."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lmi_backend.engine_config import ClientSettings, Dialect, EngineConfig
from lmi_backend.options import OPTIONS, LmiOptions
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import vllm
from lmi_backend.plan.custom import CODE_FILE, handler_properties
from lmi_backend.plan.model_source import Sources, find_adapters
from lmi_backend.structures import StructureBounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.plan.engine_plan import Explanation


def engine_config(
    options: LmiOptions,
    sources: Sources,
    arguments: dict[str, Any],
    passthrough: dict[str, str],
    report: Explanation,
    *,
    served: Mapping[str, Any] = MappingProxyType({}),
) -> EngineConfig:
    """Return what the engine is built from.

    Args:
        served: arguments of its own HTTP server that the table does not have.

    Raises:
        OptionError: an option of the engine's own HTTP server cannot be used.
    """
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
    """Return the arguments of the engine's own HTTP server."""
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
    asked = options[opt.LMI_DIALECT]
    if asked != "auto":
        return "legacy" if asked == "legacy" else "async"
    if options.is_set(opt.ASYNC_MODE):
        word = "async" if options[opt.ASYNC_MODE] else "not async"
        report.reasons.append(f"LMI dialect: async_mode is {word}")
        return "async" if options[opt.ASYNC_MODE] else "legacy"
    names_engine = options[opt.ROLLING_BATCH] not in ("auto", "disable")
    is_legacy = names_engine or options.is_set(opt.OUTPUT_FORMATTER) or options[opt.TGI_COMPAT]
    dialect: Dialect = "legacy" if is_legacy else "async"
    report.reasons.append(f"LMI dialect {dialect}: rolling_batch is {options[opt.ROLLING_BATCH]}")
    return dialect
