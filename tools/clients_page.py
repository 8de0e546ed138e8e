"""The tables of docs/clients.md: which programs run unchanged, and the paths of each client.

The first is tests/data/clients.json. A row names its client's package, whose version is that of the
lock, and the test that runs it. The second is what `make clients` recorded. The third is of
`lmi_backend/clients/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmark.perf_analyzer import VERSION
from licenses import pins
from page_parts import ROOT, table

from lmi_backend.clients import sagemaker, unserved
from lmi_backend.clients.registry import CLIENTS, path_at
from lmi_backend.clients.spec import Who
from lmi_backend.clients.unserved import UNSERVED_PATHS
from lmi_backend.engines import foreign_names

TABLE = ROOT / "tests" / "data" / "clients.json"
ROUTES = ROOT / "tests" / "data" / "vllm_routes.json"
NODE = ROOT / "tests" / "clients" / "node" / "package.json"
_COLUMNS = {
    "client": "client",
    "version": "version",
    "url": "base URL",
    "key": "key",
    "change": "what else must change",
    "test": "shown by",
}
_KEYS: dict[Who, str] = {
    "probe": "none",
    "anybody": "none",
    "client": "a client's",
    "operator": "an operator's",
}
# Its package on PyPI is a place-holder.
_UNPACKAGED = {"perf_analyzer": VERSION}


def rows() -> list[dict[str, str]]:
    """Return the table's rows."""
    read: list[dict[str, str]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return read


def clients() -> Iterator[str]:
    """Yield the lines of the table of programs."""
    known = versions()
    shown = (
        {
            **row,
            "version": known.get(row["version"], row["version"]),
            "test": f"`tests/{row['test']}`",
        }
        for row in rows()
    )
    yield from table(_COLUMNS.values(), ([row[name] for name in _COLUMNS] for row in shown))


def members() -> Iterator[str]:
    """Yield the lines of the table of what becomes of members of bodies."""
    yield "| member of an OpenAI body | what becomes of it |"
    yield "| --- | --- |"
    for name, kind in foreign_names.CONSTRAINTS.items():
        yield f"| `{name}` | `structured_outputs.{kind}` |"
    for name in foreign_names.ADAPTERS:
        yield f"| `{name}` | the adapter, as `model` |"
    for name, targets in foreign_names.OTHER_NAMES.items():
        yield f"| `{name}` | {' or '.join(f'`{each}`' for each in targets)}, as its path reads |"
    yield f"| `{foreign_names.SAMPLES}` | where it is false, `temperature` 0 |"
    begun = " or ".join(f"`{name}`" for name in foreign_names.BEGUN)
    yield f"| {begun} of the last message, an assistant's | `continue_final_message` |"
    for name in foreign_names.SWITCHES:
        yield f"| `{name}` | refused; use `{foreign_names.INSTEAD[name]}` |"
    for name, nothing in unserved.UNSERVED.items():
        yield f"| `{name}` | refused{_unless(nothing)} |"
    for name, nothing in foreign_names.EMBEDDED.items():
        yield f"| `{name}` of embeddings | refused{_unless(nothing)} |"
    for name, nothing in foreign_names.OF_SERVERS.items():
        yield f"| `{name}` | refused where its path does not read it{_unless(nothing)} |"
    for name, reason in unserved.HARMLESS.items():
        yield f"| `{name}` | has no effect: {reason} |"
    yield from _nested()


def _nested() -> Iterator[str]:
    for kind in unserved.HOSTED:
        alone = ", where it is the only tool; else left out, which the log says once"
        is_offered = kind in unserved.OFFERED
        yield f"| a tool `{kind}` of a response | refused{alone if is_offered else ''} |"
    for kind in unserved.ITEMS:
        yield f"| an item `{kind}` of a response | refused |"
    parts = ", ".join(f"`{part}`" for part in unserved.PARTS)
    yield f"| a part of an Anthropic tool result | refused, unless {parts} |"
    for name, nothing in unserved.REASONING.items():
        free = _unless((nothing,)) if nothing is not None else ""
        yield f"| `{name}` of a response's `reasoning` | refused{free} |"
    for name, where in unserved.REFUSED.items():
        yield f"| `{name}` {where} | refused |"
    for name, meaning in unserved.MENDED.items():
        yield f"| `{name}` of a message | {meaning} |"
    for name, reason in unserved.HARMLESS_NESTED.items():
        yield f"| `{name}`, nested | has no effect: {reason} |"
    for name, reason in sagemaker.HARMLESS.items():
        yield f"| `{name}` of SageMaker's InvokeEndpoint | has no effect: {reason} |"


def _unless(nothing: tuple[object, ...]) -> str:
    free = " or ".join(f"`{json.dumps(value)}`" for value in nothing)
    return f", unless {free}" if free else ""


def paths() -> Iterator[str]:
    """Yield the lines of the table of each client's paths."""
    heads = ("client", "path", "key", "takes a place", "counts `n`", "resumes", "by tensor")
    rows = []
    for client in CLIENTS.values():
        for path in client.paths:
            flags = (path.takes_place, path.counts_n, path.can_resume, path.by_tensor)
            where = f"`{path.methods.replace(' ', ', ')} {path.template.replace(':path', '')}`"
            where += f" with `{path.member}`" * bool(path.member)
            rows.append((client.title, where, _KEYS[path.who], *("yes" * flag for flag in flags)))
    yield from table(heads, rows)


def unserved_paths() -> Iterator[str]:
    """Yield the paths that vLLM's server has and this one has not.

    Raises:
        SystemExit: nobody has said why.
    """
    record = json.loads(ROUTES.read_text(encoding="utf-8"))
    rows = []
    for path in record["routes"]:
        if path_at(path.replace("{", "").replace("}", "")) is None:
            if path not in UNSERVED_PATHS:
                raise SystemExit(f"{path}: neither in a client's spec nor in unserved_paths.py")
            rows.append((f"`{path}`", UNSERVED_PATHS[path]))
    yield from table((f"path of vLLM {record['version']}", "not served, because"), rows)


def versions() -> dict[str, str]:
    """Return the version of each program that is installed for tests/clients, by its name."""
    pinned = [pin.partition("==") for pin in pins("clients.txt")]
    node = json.loads(NODE.read_text(encoding="utf-8"))["dependencies"]
    return {
        **{name: version for name, _, version in pinned},
        **{f"npm:{name}": version for name, version in node.items()},
        **_UNPACKAGED,
    }
