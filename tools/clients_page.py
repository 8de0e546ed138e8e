"""The tables of docs/clients.md: which programs run unchanged, and the paths of each client.

The first is tests/data/clients.json. A row names its client's package, whose version is that of the
lock, and the test that runs it. The second is what `make clients` recorded. The third is of
`lmi_backend/clients/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmark.perf_analyzer import VERSION
from licenses import pins
from named_tests import TESTS, check_test
from run_clients import recorded
from run_clients import table as programs_table

from lmi_backend.clients import nested_names, unserved_names
from lmi_backend.clients.registry import CLIENTS
from lmi_backend.clients.sagemaker import headers
from lmi_backend.clients.spec import Who
from lmi_backend.engines import choices, foreign_names

TABLE = TESTS / "data" / "clients.json"
NODE = TESTS / "clients" / "node" / "package.json"
PAGE = TESTS.parent / "docs" / "clients.md"
_BEGIN = "<!-- Made by `make docs` from tests/data/clients.json. -->\n"
_PROGRAMS_BEGIN = "<!-- Made by `make docs` from tests/data/client_programs.json. -->\n"
_PATHS_BEGIN = "<!-- Made by `make docs` from lmi_backend/clients/. -->\n"
_NAMES_BEGIN = "<!-- Made by `make docs` from lmi_backend/engines/foreign_names.py. -->\n"
_END = "<!-- The end of what is made. -->\n"
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


def clients_page() -> str:
    """Return the page with the tables of today.

    Raises:
        SystemExit: a row names a test that is not there.
    """
    text = PAGE.read_text(encoding="utf-8")
    made = (
        (_BEGIN, _table()),
        (_PROGRAMS_BEGIN, programs_table(recorded())),
        (_PATHS_BEGIN, _paths()),
        (_NAMES_BEGIN, _names()),
    )
    for begin, table in made:
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(_END)
        text = "".join([before, begin, *(f"{line}\n" for line in table), _END, after])
    return text


def rows() -> list[dict[str, str]]:
    """Return the table's rows."""
    read: list[dict[str, str]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return read


def _table() -> Iterator[str]:
    yield f"| {' | '.join(_COLUMNS.values())} |"
    yield f"{'| --- ' * len(_COLUMNS)}|"
    known = versions()
    for row in rows():
        check_test(row["test"], f"{TABLE.name}: {row['client']}")
        file = Path(row["test"].partition("::")[0])
        shown = row | {
            "version": known.get(row["version"], row["version"]),
            "test": f"`{file}`",
        }
        yield f"| {' | '.join(shown[name] for name in _COLUMNS)} |"


def _names() -> Iterator[str]:
    yield "| member of an OpenAI body | what becomes of it |"
    yield "| --- | --- |"
    for name, kind in foreign_names.CONSTRAINTS.items():
        yield f"| `{name}` | `structured_outputs.{kind}` |"
    for name in foreign_names.ADAPTERS:
        yield f"| `{name}` | the adapter, as `model` |"
    for name, targets in choices.OTHER_NAMES.items():
        yield f"| `{name}` | {' or '.join(f'`{each}`' for each in targets)}, as its path reads |"
    yield f"| `{choices.SAMPLES}` | where it is false, `temperature` 0 |"
    begun = " or ".join(f"`{name}`" for name in choices.BEGUN)
    yield f"| {begun} of the last message, an assistant's | `continue_final_message` |"
    for name, accepted in choices.SWITCHES.items():
        yield f"| `{name}` | refused; use `{accepted}` |"
    for name, nothing in unserved_names.UNSERVED.items():
        yield f"| `{name}` | refused{_unless(nothing)} |"
    for name, nothing in choices.EMBEDDED.items():
        yield f"| `{name}` of embeddings | refused{_unless(nothing)} |"
    for name, nothing in choices.OF_SERVERS.items():
        yield f"| `{name}` | refused where its path does not read it{_unless(nothing)} |"
    for name, reason in unserved_names.HARMLESS.items():
        yield f"| `{name}` | has no effect: {reason} |"
    yield from _nested()


def _nested() -> Iterator[str]:
    for kind in nested_names.HOSTED:
        alone = ", where it is the only tool; else left out, which the log says once"
        is_offered = kind in nested_names.OFFERED
        yield f"| a tool `{kind}` of a response | refused{alone if is_offered else ''} |"
    for kind in nested_names.ITEMS:
        yield f"| an item `{kind}` of a response | refused |"
    parts = ", ".join(f"`{part}`" for part in nested_names.PARTS)
    yield f"| a part of an Anthropic tool result | refused, unless {parts} |"
    for name, nothing in nested_names.REASONING.items():
        free = _unless((nothing,)) if nothing is not None else ""
        yield f"| `{name}` of a response's `reasoning` | refused{free} |"
    for name, where in nested_names.REFUSED.items():
        yield f"| `{name}` {where} | refused |"
    for name, meaning in nested_names.MENDED.items():
        yield f"| `{name}` of a message | {meaning} |"
    for name, reason in nested_names.HARMLESS.items():
        yield f"| `{name}`, nested | has no effect: {reason} |"
    for name, reason in headers.HARMLESS.items():
        yield f"| `{name}` of SageMaker's InvokeEndpoint | has no effect: {reason} |"


def _unless(nothing: tuple[object, ...]) -> str:
    free = " or ".join(f"`{json.dumps(value)}`" for value in nothing)
    return f", unless {free}" if free else ""


def _paths() -> Iterator[str]:
    columns = ("client", "path", "key", "takes a place", "counts `n`", "resumes", "by tensor")
    yield f"| {' | '.join(columns)} |"
    yield f"{'| --- ' * len(columns)}|"
    for client in CLIENTS.values():
        for path in client.paths:
            flags = (path.takes_place, path.counts_n, path.can_resume, path.by_tensor)
            cells = [
                client.title,
                f"`{path.methods.replace(' ', ', ')} {path.template.replace(':path', '')}`"
                + f" with `{path.member}`" * bool(path.member),
                _KEYS[path.who],
                *("yes" if flag else "" for flag in flags),
            ]
            yield f"| {' | '.join(cells)} |"


def versions() -> dict[str, str]:
    """Return the version of each program that is installed for tests/clients, by its name."""
    pinned = [pin.partition("==") for pin in pins("clients.txt")]
    node = json.loads(NODE.read_text(encoding="utf-8"))["dependencies"]
    return {
        **{name: version for name, _, version in pinned},
        **{f"npm:{name}": version for name, version in node.items()},
        **_UNPACKAGED,
    }
