"""The parts of docs/requests.md: paths, members of bodies, parameters, tensors and cases.

What is the same for several names is one row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from page_parts import ROOT, coded, grouped, table

from lmi_backend.clients import sagemaker, unserved
from lmi_backend.clients.parameters import FIELDS, IGNORED, NEUTRAL
from lmi_backend.clients.registry import CLIENTS, path_at
from lmi_backend.clients.spec import Path, Who
from lmi_backend.clients.unserved import UNSERVED_PATHS
from lmi_backend.engines import body_members
from lmi_backend.repository.tensors import Tensor
from lmi_backend.repository.variants import VARIANTS, Variant

WIRE: Final = ROOT / "tests" / "wire"
_ROUTES: Final = ROOT / "tests" / "data" / "vllm_routes.json"
_KEYS: Final[dict[Who, str]] = {"probe": "none", "anybody": "none", "operator": "operator"}
_LLM_API: Final = "sampling_param_"


def paths() -> Iterator[str]:
    of = grouped(
        ((client.title, _KEYS.get(path.who, "client"), _traits(path)), _shown(path))
        for client in CLIENTS.values()
        for path in client.paths
    )
    rows = ((client, coded(names), key, traits) for (client, key, traits), names in of.items())
    yield from table(("client", "paths", "key", "traits"), rows)


def _traits(path: Path) -> str:
    flags = {
        "slot": path.takes_place, "n": path.counts_n, "resumes": path.can_resume,
        "tensor": path.by_tensor,
    }  # fmt: skip
    return ", ".join(name for name, is_set in flags.items() if is_set)


def _shown(path: Path) -> str:
    member = f" with {path.member}" if path.member else ""
    return f"{path.methods.replace(' ', ', ')} {path.template.replace(':path', '')}{member}"


def unserved_paths() -> Iterator[str]:
    """Yield the paths that vLLM's server has and this one has not.

    Raises:
        SystemExit: nobody has said why.
    """
    record = json.loads(_ROUTES.read_text(encoding="utf-8"))
    lacking = [
        path for path in record["routes"] if path_at(path.replace("{", "").replace("}", "")) is None
    ]
    if stray := [path for path in lacking if path not in UNSERVED_PATHS]:
        raise SystemExit(f"{stray[0]}: neither in a client's spec nor in unserved_paths.py")
    of = grouped((UNSERVED_PATHS[path], path) for path in lacking)
    rows = ((coded(names), reason) for reason, names in of.items())
    yield from table((f"paths of vLLM {record['version']}", "not served, because"), rows)


def members() -> Iterator[str]:
    """Yield the lines of the tables of what becomes of members of bodies."""
    yield from table(("member", "what becomes of it"), _translated())
    yield "\n**Refused (400):**\n"
    yield from _items(_refused())
    yield f"- parts of an Anthropic tool result, but {coded(unserved.PARTS)}"
    yield "\n**Accepted without an effect:**\n"
    yield from _items(_harmless())


def _translated() -> Iterator[tuple[str, str]]:
    of = grouped((kind, name) for name, kind in body_members.CONSTRAINTS.items())
    for kind, names in of.items():
        yield coded(names), f"`structured_outputs.{kind}`"
    yield coded(body_members.ADAPTERS), "the adapter, as `model`"
    of = grouped((targets, name) for name, targets in body_members.OTHER_NAMES.items())
    for targets, names in of.items():
        yield coded(names), " or ".join(f"`{each}`" for each in targets)
    yield f"`{body_members.SAMPLES}`", "where it is false, `temperature` 0"
    begun = coded(body_members.BEGUN)
    yield f"{begun} of the last message, an assistant's", "`continue_final_message`"
    for name, meaning in unserved.MENDED.items():
        yield f"`{name}` of a message", meaning
    hints = coded((*unserved.HINTS, *sagemaker.HINTS))
    yield hints, "chooses among several workers ([scheduling](scheduling.md))"


def _refused() -> Iterator[tuple[str, str]]:
    """Yield where a member is refused, with the values that it may have, and the member."""
    for name in body_members.SWITCHES:
        yield f"use `{body_members.INSTEAD[name]}`", name
    for where, names in (
        ("on paths that do not support it", body_members.OF_SERVERS),
        ("on every path", unserved.UNSERVED),
        ("of embeddings", body_members.EMBEDDED),
    ):
        yield from ((where + _unless(nothing), name) for name, nothing in names.items())
    for kind in unserved.HOSTED:
        is_offered = kind in unserved.OFFERED
        alone = "tools of a response; left out if there is another tool"
        yield alone if is_offered else "tools of a response", kind
    yield from (("items of a response", kind) for kind in unserved.ITEMS)
    for name, value in unserved.REASONING.items():
        yield f"of `reasoning`{_unless(() if value is None else (value,))}", name
    yield from ((where, name) for name, where in unserved.REFUSED.items())


def _unless(nothing: tuple[object, ...]) -> str:
    free = " or ".join(f"`{json.dumps(value)}`" for value in nothing)
    return f", unless {free}" if free else ""


def _harmless() -> Iterator[tuple[str, str]]:
    for each in (unserved.HARMLESS, sagemaker.HARMLESS):
        yield from ((reason, name) for name, reason in each.items())


def _items(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for reason, names in grouped(pairs).items():
        yield f"- {reason}: {coded(dict.fromkeys(names))}"


def parameters() -> Iterator[str]:
    """Yield the lines of the table of parameters: all names of one meaning in one row."""
    llm_api = [name for name in FIELDS if name.startswith(_LLM_API)]
    of = grouped(
        ((field.target, field.kind.accepted), name)
        for name, field in FIELDS.items()
        if name not in llm_api
    )
    rows = ((coded(names), accepted) for (_, accepted), names in of.items())
    yield from table(("parameter, with its other names", "accepted"), rows)
    short = (name.removeprefix(_LLM_API) for name in llm_api)
    yield f"\nTensorRT-LLM's LLM API has `{_LLM_API}` before {coded(short)}."
    yield f"\nIgnored: {coded(sorted(IGNORED))}."


def neutral_parameters() -> Iterator[str]:
    """Yield the parameters that may have values without an effect alone."""
    yield from (f"- `{name}`: {coded(map(str, values))}" for name, values in NEUTRAL.items())


def tensors() -> Iterator[str]:
    """Yield the lines of the tables of models and of their tensors."""
    rows = [
        (f"`{variant.model_name('NAME')}`", f"`{variant.clients}`", variant.help, _mode(variant))
        for variant in VARIANTS.values()
    ]
    yield from table(("model", "`--clients`", "for", "mode"), rows)
    shown: dict[Tensor, Variant] = {}
    done: set[tuple[Tensor, ...]] = set()
    for variant in VARIANTS.values():
        for title, all_tensors in (("Inputs", variant.inputs), ("Outputs", variant.outputs)):
            if all_tensors in done:
                continue
            done.add(all_tensors)
            yield f"\n### {title} of `{variant.model_name('NAME')}`\n"
            new = [each for each in all_tensors if each not in shown]
            known = [each.name for each in all_tensors if each in shown]
            shown |= dict.fromkeys(new, variant)
            yield from table(("name", "type", "meaning"), _tensor_rows(new))
            if known:
                yield f"\nAs above: {coded(known)}."


def _mode(variant: Variant) -> str:
    mode = "decoupled" if variant.is_decoupled else "one response"
    return f"{mode}, batch dimension" if variant.max_batch_size else mode


def _tensor_rows(found: list[Tensor]) -> Iterator[tuple[str, ...]]:
    of = grouped(((each.data_type, str(each.shape), _meaning(each)), each.name) for each in found)
    for (data_type, shape, meaning), names in of.items():
        kind = f"{data_type.removeprefix('TYPE_')} {shape.replace(' ', '')}"
        yield coded(names), kind, meaning


def _meaning(tensor: Tensor) -> str:
    if tensor.name.startswith(_LLM_API):
        return "LLM API: the parameter of that name."
    is_switch = tensor.help == f"Return {tensor.name.removeprefix('return_')}."
    return "Return that output." if is_switch else tensor.help


def wire() -> Iterator[str]:
    """Yield the first case of each file of tests/wire."""
    for file in sorted(WIRE.glob("*.json")):
        case = json.loads(file.read_text(encoding="utf-8"))[0]
        yield f"**{file.stem.replace('_', ' ')}**\n"
        yield from _case(case)


def _case(case: dict[str, Any]) -> Iterator[str]:
    rows = case.get("rows") or [case["inputs"]]
    made = case["made"]
    yield "```"
    yield from (json.dumps(_scalars(row) | case.get("parameters", {})) for row in rows)
    yield "→"
    yield from map(json.dumps, made.get("responses", [made.get("work")]))
    yield "```\n"


def _scalars(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value[0] if len(value) == 1 else value for name, value in row.items()}
