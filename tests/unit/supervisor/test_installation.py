"""What a server takes, and what it is therefore given."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.repository.restricted_apis import NOT_FOR_CLIENTS, Restriction
from lmi_backend.supervisor.installation import TritonServer, find_server
from lmi_backend.supervisor.server import ServerSetup

# Of `tritonserver --help` 2.71.0 (26.07), which goes to standard error with status 1.
NEW_HELP = """\
  --http-max-input-size <integer>
  --allow-client-shm <boolean>
"""
NEW = ("--allow-client-shm", "--http-max-input-size")


def _server(folder: Path, text: str) -> TritonServer:
    binary = folder / "tritonserver"
    binary.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}END\nexit 1\n", encoding="utf-8")
    binary.chmod(0o755)
    return TritonServer(binary, folder)


def _newer(server: TritonServer, apis: tuple[str, ...], largest: int = 0) -> list[str]:
    ports: Any = SimpleNamespace(arguments=list)
    traces: Any = SimpleNamespace(names=SimpleNamespace(prefix="lmi"))
    none: Any = None
    setup = ServerSetup(
        server, Path("/models"), [], ports, none, traces, none, largest_message=largest
    )
    return [word for word in setup.argv(Restriction(apis, "key")) if word.startswith(NEW)]


def test_the_embedded_server_is_given_nothing_newer(tmp_path: Path) -> None:
    server = find_server(tmp_path)
    assert server.takes("--allow-vertex-ai")
    assert not any(server.takes(flag) for flag in NEW)
    assert _newer(server, tuple(NOT_FOR_CLIENTS)) == []


@pytest.mark.parametrize(
    ("apis", "largest", "expected"),
    [
        (tuple(NOT_FOR_CLIENTS), 1024, ["false", "67108864"]),
        (("logging",), 100 << 20, ["true", "209715200"]),
    ],
    ids=["closed, small", "open, large"],
)
def test_a_newer_server_is_given_what_it_takes(
    tmp_path: Path, apis: tuple[str, ...], largest: int, expected: list[str]
) -> None:
    given = _newer(_server(tmp_path, NEW_HELP), apis, largest)
    assert given == [f"{flag}={value}" for flag, value in zip(NEW, expected, strict=True)]


def test_a_server_that_says_nothing_is_given_nothing_newer(tmp_path: Path) -> None:
    assert _newer(TritonServer(tmp_path / "none", tmp_path), ("logging",)) == []
