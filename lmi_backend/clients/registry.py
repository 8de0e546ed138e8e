"""All clients, and the paths on which they send requests."""

from __future__ import annotations

from typing import Final

from lmi_backend.clients import (
    anthropic,
    lmi,
    openai,
    responses,
    sagemaker,
    tgi,
    triton,
    trtllm,
    vllm,
)
from lmi_backend.clients.spec import RELAY, UPLOAD, ClientSpec, Path

_MODULES: Final = (
    lmi, openai, responses, anthropic, sagemaker, tgi, triton, vllm, trtllm
)  # fmt: skip
CLIENTS: Final[dict[str, ClientSpec]] = {each.SPEC.name: each.SPEC for each in _MODULES}
"""Each client by its name, in the order of documents."""
PATHS: Final = tuple(path for spec in CLIENTS.values() for path in spec.paths)
_EXACT: Final = {path.template: path for path in reversed(PATHS) if "{" not in path.template}
_NAMED: Final = [path for path in PATHS if "{" in path.template]
WORK: Final = frozenset(path.template for path in _EXACT.values() if path.takes_place)
"""Paths without a name in them that take a place."""
SHARED: Final = {
    path.template: (spec, path) for spec in CLIENTS.values() for path in spec.paths if path.member
}
"""Paths of one client on which another's bodies come too, with who that is and its own row."""
RELAYED: Final = tuple(path for path in PATHS if path.action == RELAY)
"""Paths whose bodies the engine's own server reads and answers."""
UPLOADS: Final = frozenset(path.template for path in PATHS if path.action == UPLOAD)
"""Paths whose bodies are uploads of files."""
RESUMED: Final = frozenset(path.template for path in RELAYED if path.can_resume)
"""Those of them whose streams another worker can continue."""
COUNTED: Final = frozenset(path.template for path in RELAYED if path.counts_n)
"""Those of them whose bodies may have several answers."""


def path_at(path: str) -> Path | None:
    """Return the entry of a request's path, query included; None if nobody serves it."""
    bare = path.partition("?")[0]
    if (entry := _EXACT.get(bare)) is not None:
        return entry
    return next((path for path in _NAMED if parameters_in(path.template, bare) is not None), None)


def parameters_in(template: str, path: str) -> dict[str, str] | None:
    """Return what a path has in place of the names of a template; None if it does not fit.

    `{name}` stands for one part of a path, `{name:path}` for any number of them.
    """
    names = template.split("/")
    parts = path.split("/", len(names) - 1 if template.endswith(":path}") else -1)
    if len(parts) != len(names):
        return None
    parameters = {}
    for name, part in zip(names, parts, strict=True):
        if name.startswith("{") and part:
            parameters[name[1:-1].removesuffix(":path")] = part
        elif name != part:
            return None
    return parameters


def is_at_once(path: str) -> bool:
    return (entry := path_at(path)) is not None and not entry.takes_place


_FOLDERS: Final = {
    tuple(path.template.partition("{")[0].strip("/").split("/")): spec
    for spec in reversed(CLIENTS.values())
    for path in spec.paths
}


def client_near(path: str) -> ClientSpec:
    """Return whose client sends a request to a path that nobody serves.

    It is the client with the longest path above this one; OpenAI's, if there is none.
    """
    parts = path.strip("/").split("/")
    for length in range(len(parts), 0, -1):
        if (spec := _FOLDERS.get(tuple(parts[:length]))) is not None:
            return spec
    return CLIENTS["openai"]
