"""Fill the parts of pages that are made from tables in the code; --check only compares.

python tools/make_docs.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import clients_page
import compat_page
import metrics_page
import planner_page
import planner_tables
import results_page
import run_clients
from commands_page import commands
from contents_page import contents
from engines_page import engines
from licenses import PAGE as LICENSES
from licenses import LicensesError, check_page, recorded
from page_parts import MARK, ROOT, Makers, filled, table
from releases_record import PATH as RELEASES
from releases_record import releases_record
from support_page import SUPPORT, support

from lmi_backend.clients.parameters import CONTROLS, FIELDS, IGNORED, NEUTRAL
from lmi_backend.deploy.filling import texts_below
from lmi_backend.engines.vllm.fast_paths import COSTS
from lmi_backend.engines.vllm.names import NAMES
from lmi_backend.options import OPTIONS
from lmi_backend.options.argument_types import is_text_for
from lmi_backend.options.engine_spec import SPECS, implementations
from lmi_backend.options.option import AnyOption
from lmi_backend.options.signature import NO_FLAG, Argument, recorded_signature, shorten
from lmi_backend.options.table import VARIABLES, find_option
from lmi_backend.options.table.variables import SERVER_FLAGS
from lmi_backend.repository.tensors import Tensor
from lmi_backend.repository.variants import MAIN, VARIANTS, Variant

DOCS = ROOT / "docs"
DEPLOY = ROOT / "deploy"
WIRE = ROOT / "tests" / "wire"


def main(arguments: list[str]) -> int:
    """Write the pages, or report the stale ones; return the exit status."""
    try:
        made = pages()
    except LicensesError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    stale = [path for path, text in made.items() if _read(path) != text]
    if "--check" in arguments:
        for path in stale:
            sys.stdout.write(f"{path.relative_to(ROOT)}: stale; run `make docs`\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path], encoding="utf-8")
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    return 0


def pages() -> dict[Path, str]:
    """Return each page and its text.

    Raises:
        SystemExit: no page has one of the parts that are made.
    """
    check_page(_read(LICENSES), recorded())
    texts = {
        RELEASES: releases_record(),
        **{DEPLOY / "kubernetes/base" / name: text for name, text in texts_below("base").items()},
    }
    folders = (DOCS, ROOT / "benchmarks", SUPPORT)
    for page in (page for folder in folders for page in folder.glob("*.md")):
        if "<!-- made: " in (text := _read(page)):
            texts[page] = filled(text, MAKERS)
    shown = {name for text in texts.values() for name in MARK.findall(text)}
    if lost := sorted(MAKERS.keys() - shown):
        raise SystemExit(f"no page has these parts: {', '.join(lost)}")
    return texts


def _fast_paths() -> Iterator[str]:
    yield from table(("name", "without it"), ((f"`{name}`", cost) for name, cost in COSTS.items()))


def _vllm_names() -> Iterator[str]:
    rows = (
        (f"`{name}`", "<br>".join(f"`{place.removesuffix(':*')}`" for place in entry.places))
        for name, entry in NAMES.items()
    )
    yield from table(("name", "modules, the newest first"), rows)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _options() -> Iterator[str]:
    live = [option for option in OPTIONS if option.status == "mapped"]
    for scope, options in groupby(sorted(live, key=_scope), key=_scope):
        yield f"## {_title(scope)}\n"
        rows = [_option_row(option) for option in options]
        yield from table(("option", "accepted", "default", "environment", "meaning"), rows)
        yield ""
    for status in ("ignored", "refused"):
        yield f"## {status.capitalize()}\n"
        ended = [option for option in OPTIONS if option.status == status]
        rows = [(f"`{row.name}`", _title(row.scope), row.reason) for row in ended]
        yield from table(("option", "for", "reason"), rows)
        yield ""
    for implementation in implementations():
        yield from _passed(implementation)
    yield "## Environment variables\n"
    rows = [(f"`{name}`", status.word, status.detail) for name, status in VARIABLES.items()]
    yield from table(("variable", "status", "what becomes of it"), rows)


def _passed(engine: str) -> Iterator[str]:
    """Describe the arguments that are options under the engine's own names."""
    signature = recorded_signature(engine)
    if signature is None:
        return
    yield f"## Passed to {_title(engine)}\n"
    yield f"Arguments of {_title(engine)} {signature.version}, with `option.` before them. The"
    yield "engine reads their values. Another version may have others.\n"
    yield from table(("option", "type", "default"), _argument_rows(engine, signature.arguments))
    if signature.server:
        yield f"\n### Passed to the HTTP server of {_title(engine)}\n"
        yield "These change how bodies are read and answered. The server itself is not started.\n"
        settable = {name: each for name, each in signature.server.items() if is_text_for(each.type)}
        yield from table(("option", "type", "default"), _argument_rows(engine, settable))


def _argument_rows(engine: str, arguments: Mapping[str, Argument]) -> list[tuple[str, ...]]:
    return [
        (f"`option.{name}`", shorten(argument.type), argument.default)
        for name, argument in arguments.items()
        if argument.flag != NO_FLAG and name not in SERVER_FLAGS
        if find_option(f"option.{name}", engine) is None
    ]


_TITLES = {"lmcache": "LMCache"} | {name: spec.title for name, spec in SPECS.items()}


def _title(scope: str) -> str:
    return _TITLES.get(scope, scope.capitalize())


def _scope(option: AnyOption) -> str:
    return option.scope


def _option_row(option: AnyOption) -> tuple[str, ...]:
    names = ", ".join(f"`{name}`" for name in (option.name, *option.aliases))
    default = option.default if option.lmi_default is None else option.lmi_default
    shown = "" if default in ("", 0, {}, [], None, False) else f"`{default}`"
    variables = option.variables
    # Two implementations may be one engine.
    becomes = "".join(
        dict.fromkeys(
            f" → {implementation.name} `{argument}`"
            for implementation in implementations().values()
            if (argument := option.argument_of(implementation))
        )
    )
    plan = f" → plan {option.plan_field}" if option.plan_field else ""
    return names, option.kind.accepted, shown, ", ".join(variables), option.help + becomes + plan


def _parameters() -> Iterator[str]:
    rows = (
        (f"`{name}`", field.kind.accepted, "" if field.target in CONTROLS else field.target)
        for name, field in FIELDS.items()
    )
    yield from table(("parameter", "accepted", "sets"), rows)


def _neutral_parameters() -> Iterator[str]:
    rows = ((f"`{n}`", ", ".join(f"`{v}`" for v in values)) for n, values in NEUTRAL.items())
    yield from table(("parameter", "accepted"), rows)


def _ignored_parameters() -> Iterator[str]:
    yield f"Ignored: {', '.join(f'`{name}`' for name in sorted(IGNORED))}."


def _tensors() -> Iterator[str]:
    rows = [
        (f"`{variant.model_name('NAME')}`", f"`{variant.clients}`", variant.help, _mode(variant))
        for variant in VARIANTS.values()
    ]
    yield from table(("model", "`--clients`", "for", "mode"), rows)
    shown: set[tuple[Tensor, ...]] = set()
    for variant in VARIANTS.values():
        for title, tensors in (("Inputs", variant.inputs), ("Outputs", variant.outputs)):
            if tensors in shown:
                continue
            shown.add(tensors)
            yield from _tensor_table(title, variant, tensors)


def _tensor_table(title: str, variant: Variant, tensors: tuple[Tensor, ...]) -> Iterator[str]:
    of = "" if variant is MAIN else f" of {variant.model_name('NAME')}"
    extends = variant is not MAIN and set(MAIN.inputs) < set(tensors)
    yield f"\n## {'Further inputs' if extends else title}{of}\n"
    rows = [
        _tensor_row(tensor, variant)
        for tensor in tensors
        if not extends or tensor not in MAIN.inputs
    ]
    yield from table(("name", "type", "shape", "meaning"), rows)


def _mode(variant: Variant) -> str:
    mode = "decoupled" if variant.is_decoupled else "one response"
    return f"{mode}, batch dimension" if variant.max_batch_size else mode


def _tensor_row(tensor: Tensor, variant: Variant) -> tuple[str, ...]:
    kind = tensor.data_type.removeprefix("TYPE_")
    is_flat = variant.max_batch_size > 0 and not tensor.is_batched
    shape = f"{tensor.shape}{' without batch' if is_flat else ''}"
    return f"`{tensor.name}`", kind, shape, tensor.help


def _wire() -> Iterator[str]:
    for file in sorted(WIRE.glob("*.json")):
        yield f"## {file.stem.replace('_', ' ')}\n"
        for case in json.loads(file.read_text(encoding="utf-8")):
            yield from _case(case)


def _case(case: dict[str, Any]) -> Iterator[str]:
    context = case.get("context", {})
    given = ", ".join(f"`{name}`: `{value}`" for name, value in context.items())
    yield f"**{case['name'].capitalize()}**{f' ({given})' if given else ''}\n"
    rows = case.get("rows") or [case["inputs"]]
    bodies = [_scalars(row) | case.get("parameters", {}) for row in rows]
    made = case["made"]
    yield "```"
    yield from (_json(body) for body in bodies)
    yield "→"
    if "error" in made:
        yield f"{made['error']['code']}: {made['error']['text']}"
    else:
        yield from (_json(answer) for answer in made.get("responses", [made["work"]]))
    yield "```\n"


def _scalars(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value[0] if len(value) == 1 else value for name, value in row.items()}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


MAKERS: Makers = {
    "clients": clients_page.clients,
    "commands": commands,
    "contents": contents,
    "engines": engines,
    "fast-paths": _fast_paths,
    "front-end-metrics": metrics_page.front_end_metrics,
    "ignored-parameters": _ignored_parameters,
    "members": clients_page.members,
    "metrics": metrics_page.metrics,
    "neutral-parameters": _neutral_parameters,
    "newest-results": results_page.newest_results,
    "newest-runs": results_page.newest_runs,
    "options": _options,
    "parameters": _parameters,
    "paths": clients_page.paths,
    "planner-errors": planner_tables.planner_errors,
    "planner-fits": planner_tables.planner_fits,
    "planner-logs": planner_tables.planner_logs,
    "planner-not-compared": planner_page.not_compared,
    "planner-predicted": planner_page.predicted,
    "programs": run_clients.programs,
    "questions": metrics_page.questions,
    "regimes": results_page.regimes,
    "server-releases": compat_page.server_releases,
    "support": support,
    "tensors": _tensors,
    "unserved-paths": clients_page.unserved_paths,
    "vllm-metrics": metrics_page.vllm_metrics,
    "vllm-names": _vllm_names,
    "vllm-releases": compat_page.vllm_releases,
    "wire": _wire,
}
"""Name of a part of a page to what makes its lines."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
