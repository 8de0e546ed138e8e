"""Proxies before one server, as deploy/proxies sets them: what a client notices of them.

`make test` tries nginx and HAProxy; `make fleet` all of them.
"""

import contextlib
import http.client
import itertools
import json
import re
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.run.places import ROOT
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.pods import MODEL, Pod
from tests.support.servers.routers import Router, Running

CHAT = "/v1/chat/completions"
LONG: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "a b c"}],
    "max_tokens": 3000,
}
"""A minute of tokens."""
LINES = {"inputs": "a b c", "parameters": {"max_new_tokens": 3000}, "stream": True}
SHORT = {"inputs": "a b", "parameters": {"max_new_tokens": 2}}
UNTOLD = " that is not told anything"
CLOSING = (f"nginx{UNTOLD}", "Varnish")
"""What opens a connection for each request."""


@pytest.fixture(scope="module")
def server(servers: list[Pod]) -> Pod:
    return servers[0]


@pytest.fixture(scope="module")
def proxied(
    proxy: Router, server: Pod, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    proxy.environment()
    with proxy.running(tmp_path_factory.mktemp("proxy"), [server.port]) as started:
        yield started


@contextlib.contextmanager
def sent(proxied: Running, path: str, body: Any, name: str = "") -> Iterator[Any]:
    """Send a request; give what returns its response. After the block, its client has left."""
    address = urlsplit(proxied.url)
    connection = http.client.HTTPConnection(
        str(address.hostname), address.port, timeout=HANG_SECONDS
    )
    data = body if isinstance(body, str) else json.dumps(body)
    headers = {"content-type": "application/json"} | ({"x-request-id": name} if name else {})
    with contextlib.closing(connection):
        connection.request("POST", path, data, headers)
        yield connection.getresponse
        connection.close()


def outcome(server: Pod, name: str) -> str:
    """Return how a request ended at the server; empty for one that has not."""
    log = server.served.log()
    found = re.search(rf" outcome=(\S+) .* id={name} ", log)
    return found[1] if found else ""


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, LONG | {"stream": True}), ("/invocations", LINES)]
)
def test_a_stream_passes_as_it_is_made_until_its_client_leaves(
    proxied: Running, server: Pod, path: str, body: dict[str, Any]
) -> None:
    name = secrets.token_hex(8)
    with sent(proxied, path, body, name) as answer:
        response = answer()
        for _ in range(5):
            assert response.readline()
        assert not outcome(server, name)
        response.close()
    assert wait_for(lambda: outcome(server, name)) == "left"
    wait_for(lambda: server.running() == 0)


def test_a_client_that_leaves_before_its_answer_ends_its_request(
    proxied: Running, server: Pod
) -> None:
    name = secrets.token_hex(8)
    with sent(proxied, CHAT, LONG, name):
        wait_for(lambda: server.running() == 1)
    assert wait_for(lambda: outcome(server, name)) == "left"
    wait_for(lambda: server.running() == 0)


def test_a_large_body_passes(proxy: Router, proxied: Running) -> None:
    with sent(proxied, "/invocations", SHORT | {"padding": "x" * (8 << 20)}) as answer:
        response = answer()
        # nginx takes 1 MiB by itself.
        expected = 413 if proxy.name.endswith(UNTOLD) else 200
        assert response.status == expected, response.read()


def test_an_error_is_the_servers_own(proxied: Running, server: Pod) -> None:
    for body in ("{nope", json.dumps({"model": "none", "messages": []})):
        status, headers, data = server.served.ask(CHAT, body.encode())
        name = secrets.token_hex(8)
        with sent(proxied, CHAT, body, name) as answer:
            response = answer()
            assert (response.status, response.read()) == (status, data)
            assert response.getheader("content-type") == headers["content-type"]
            assert response.getheader("x-request-id") == name


def test_connections_are_used_again(proxy: Router, proxied: Running, server: Pod) -> None:
    seen: list[set[int]] = []
    for _ in range(5):
        with sent(proxied, "/invocations", SHORT) as answer:
            assert json.loads(answer().read())["generated_text"]
        seen.append(_connections(server))
    kept = [before & after for before, after in itertools.pairwise(seen)]
    assert all(kept) == (proxy.name not in CLOSING), seen


def _connections(server: Pod) -> set[int]:
    """Return the ports from which connections to the server's port come."""
    return {
        each.raddr.port
        for process in server.served.family()
        for each in process.net_connections()
        if each.status == "ESTABLISHED" and each.laddr.port == server.port
    }


def test_the_page_has_what_was_run(proxy: Router, *, is_long: bool) -> None:
    page = (ROOT / "docs" / "fleet.md").read_text("utf-8")
    version = proxy.version() if is_long else ""
    assert f"| {proxy.name.removesuffix(UNTOLD)} | {version}" in page
