"""Write the pages of docs/ that are made from tables in the code; --check only compares.

python tools/make_docs.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from architecture_picture import pictures
from clients_page import PAGE as CLIENTS
from clients_page import clients_page
from commands_page import commands_page
from contents_page import CONTENTS, contents_page
from dashboards import dashboard, fleet_dashboard
from engines_page import engines_page
from foreign_objects_page import foreign_objects_page
from licenses import LicensesError
from licenses_page import licenses_page
from metrics_page import metrics_page
from migration_pages import migration_pages
from planner_page import planner_page
from regimes import result_pages
from releases_record import PATH as RELEASES
from releases_record import releases_record
from scaling_page import scaling_page
from support_page import PAGE as SUPPORT
from support_page import support_page
from triton_page import triton_page

from lmi_backend.clients.fields import CONTROLS, FIELDS, IGNORED, NEUTRAL
from lmi_backend.deploy.filling import texts_below
from lmi_backend.options import OPTIONS
from lmi_backend.options.argument_types import is_text_for
from lmi_backend.options.engine_spec import SPECS, implementations
from lmi_backend.options.option import AnyOption
from lmi_backend.options.signature import NO_FLAG, Argument, recorded_signature, shorten
from lmi_backend.options.table import VARIABLES, find_option
from lmi_backend.repository.tensors import Tensor
from lmi_backend.repository.variants import MAIN, VARIANTS, Variant

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
DEPLOY = ROOT / "deploy"
WIRE = ROOT / "tests" / "wire"
NOTE = "<!-- Made by `make docs`; edit the table it names instead. -->\n"


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
    """Return each page and its text."""
    made = {
        "commands.md": commands_page(),
        "engines.md": engines_page(),
        "foreign-objects.md": foreign_objects_page(),
        "licenses.md": licenses_page(),
        "options.md": _options(),
        "parameters.md": _parameters(),
        "tensors.md": _tensors(),
        "metrics.md": metrics_page(),
        "planner.md": planner_page(),
        "scaling.md": scaling_page(),
        "triton-releases.md": triton_page(),
        "wire.md": _wire(),
    }
    texts = {
        **{DOCS / name: "\n".join([NOTE, *lines]) + "\n" for name, lines in made.items()},
        **result_pages(NOTE),
        SUPPORT: "\n".join([NOTE, *support_page()]) + "\n",
        CLIENTS: clients_page(),
        **migration_pages(),
        **pictures(),
        RELEASES: releases_record(),
        DEPLOY / "grafana-dashboard.json": "\n".join(dashboard()) + "\n",
        DEPLOY / "grafana-fleet.json": "\n".join(fleet_dashboard()) + "\n",
        **{DEPLOY / "kubernetes/base" / name: text for name, text in texts_below("base").items()},
    }
    return texts | {CONTENTS: "\n".join([NOTE, *contents_page(texts)]) + "\n"}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _options() -> Iterator[str]:
    yield "# Options\n"
    yield "*For people who write a serving.properties: every option, its values and its meaning.*\n"
    yield "Start with [the 20 options you will use](common-options.md). This page has every option"
    yield "of LMI; some have a row for each engine. An arrow names what the option sets.\n"
    yield "- `lmi-backend check FOLDER` says what becomes of your options."
    yield "- `lmi-backend options WORD --engine ENGINE` explains an option under an engine."
    yield "- [Coming from LMI](migrating-from-lmi.md#what-stays) says which source wins.\n"
    yield "The source of this page is `lmi_backend/options/table/`."
    live = [option for option in OPTIONS if option.status == "mapped"]
    for scope, options in groupby(sorted(live, key=_scope), key=_scope):
        yield f"\n## {_title(scope)}\n"
        rows = [_option_row(option) for option in options]
        yield from _table(("option", "accepted", "default", "environment", "meaning"), rows)
    for status in ("ignored", "refused"):
        yield f"\n## {status.capitalize()}\n"
        ended = [option for option in OPTIONS if option.status == status]
        rows = [(f"`{row.name}`", _title(row.scope), row.reason) for row in ended]
        yield from _table(("option", "for", "reason"), rows)
    for implementation in implementations():
        yield from _passed(implementation)
    yield "\n## Environment variables\n"
    rows = [(f"`{name}`", status.word, status.detail) for name, status in VARIABLES.items()]
    yield from _table(("variable", "status", "what becomes of it"), rows)


def _passed(engine: str) -> Iterator[str]:
    """Describe the arguments that are options under the engine's own names."""
    signature = recorded_signature(engine)
    if signature is None:
        return
    yield f"\n## Passed to {_title(engine)}\n"
    yield f"Arguments of {_title(engine)} {signature.version}, with `option.` before them. The"
    yield "engine reads their values. Another version has those of its installed files.\n"
    yield from _table(("option", "type", "default"), _argument_rows(engine, signature.arguments))
    if signature.server:
        yield f"\n### Passed to the HTTP server of {_title(engine)}\n"
        yield "These change how bodies are read and answered. The server itself is not started.\n"
        settable = {name: each for name, each in signature.server.items() if is_text_for(each.type)}
        yield from _table(("option", "type", "default"), _argument_rows(engine, settable))


def _argument_rows(engine: str, arguments: Mapping[str, Argument]) -> list[tuple[str, ...]]:
    return [
        (f"`option.{name}`", shorten(argument.type), argument.default)
        for name, argument in arguments.items()
        if argument.flag != NO_FLAG and find_option(f"option.{name}", engine) is None
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
    yield "# Request parameters\n"
    yield "*For people who send requests: every parameter of a request.*\n"
    yield "Names from `lmi_backend/clients/fields.py`, usable in LMI's `parameters`, as request"
    yield "parameters of Triton, and in `sampling_parameters`.\n"
    rows = [
        (f"`{name}`", field.kind.accepted, "" if field.target in CONTROLS else field.target)
        for name, field in FIELDS.items()
    ]
    yield from _table(("parameter", "accepted", "sets"), rows)
    yield "\nNot served. These values change nothing, and any body may have them. Other values are"
    yield "refused by name: with 422 in bodies of Text Generation Inference, else with 400."
    yield "LMI's bodies are the exception. LMI itself passes over them, so a body that it answers"
    yield "is answered here too, and the log names the parameter once.\n"
    neutral = [(f"`{n}`", ", ".join(f"`{v}`" for v in values)) for n, values in NEUTRAL.items()]
    yield from _table(("parameter", "accepted"), neutral)
    yield f"\nIgnored: {', '.join(f'`{name}`' for name in sorted(IGNORED))}."


def _tensors() -> Iterator[str]:
    yield "# Tensors\n"
    yield "*For clients of Triton's ports: every input and output of the models.*\n"
    yield "Every input is optional, but a request needs one input with a prompt. A dimension of -1"
    yield "accepts any length. The models for other clients share the workers of NAME;"
    yield "`lmi-backend convert --clients` writes them. The table in the code is"
    yield "`lmi_backend/repository/tensors.py`.\n"
    rows = [
        (f"`{variant.model_name('NAME')}`", f"`{variant.clients}`", variant.help, _mode(variant))
        for variant in VARIANTS.values()
    ]
    yield from _table(("model", "`--clients`", "for", "mode"), rows)
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
    yield from _table(("name", "type", "shape", "meaning"), rows)


def _mode(variant: Variant) -> str:
    mode = "decoupled" if variant.is_decoupled else "one response"
    return f"{mode}, batch dimension" if variant.max_batch_size else mode


def _tensor_row(tensor: Tensor, variant: Variant) -> tuple[str, ...]:
    kind = tensor.data_type.removeprefix("TYPE_")
    is_flat = variant.max_batch_size > 0 and not tensor.is_batched
    shape = f"{tensor.shape}{' without batch' if is_flat else ''}"
    return f"`{tensor.name}`", kind, shape, tensor.help


def _wire() -> Iterator[str]:
    yield "# Requests and answers\n"
    yield "*For people who write a client: requests and their answers, case by case.*\n"
    yield "The tests run each of these cases. Tensors and parameters are shown as a body of"
    yield "`/generate`. An answer is shown with each of its responses. `tests/wire/` has them.\n"
    for file in sorted(WIRE.glob("*.json")):
        yield f"\n## {file.stem.replace('_', ' ')}\n"
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


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _row(head)
    yield _row(("---",) * len(head))
    yield from map(_row, rows)


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
