"""Who is let in: by the host that a client names, the page's site, and the key."""

import json
import logging
import socket
import sys
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from lmi_backend.clients.registry import PATHS
from lmi_backend.clients.spec import OPERATOR, PROBE
from lmi_backend.front_end_settings import OWN_AGENT, Settings
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.frontend.http.access import Access, is_loopback, name_in
from lmi_backend.frontend.http.api_keys import ApiKeys, hash_of
from tests.support.answers.asking import ask

PROBES = {path.template for path in PATHS if path.who == PROBE}
OWN = ("localhost", "LOCALHOST.:8080", "127.0.0.1:8080", "[::1]:8080", "10.0.0.7", "a.localhost:1")
FOREIGN = ("evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "2130706433")
NO_HOSTS = (
    "", " ", "[", "[]", "]", "[::1", "::1", "[::g]", "a b", "a:b", "a:99999", "a:123456", "a:-1",
    "user@a", "a/b", "http://a", "a?b", "a#b", "é", "a\tb", "a%0ab", ".", "[::1]a", "a,b",
    "a" * 254, "*",
)  # fmt: skip


def local(folder: Path, **settings: object) -> FrontEnd:
    return FrontEnd(Settings(base=folder, **settings))  # type: ignore[arg-type]


def paths(front_end: FrontEnd) -> list[tuple[str, str]]:
    """All paths, with a method of each."""
    rows = [row for row, _ in front_end.make_routes()]
    return [(method, row.path) for row in rows for method in (row.methods or ())]


@pytest.mark.parametrize("host", NO_HOSTS)
def test_what_is_no_host_has_no_name(host: str) -> None:
    assert name_in(host) is None


@pytest.mark.parametrize("host", ["", "[", "a:99999"])
async def test_a_host_that_is_none_is_refused_on_every_path(
    host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    front_end = local(tmp_path, api_key="key")
    for method, path in [*paths(front_end), ("GET", "/nothing"), ("PUT", "/ping")]:
        answer = await ask(front_end, path, {"host": host}, method)
        # 422 is what Text Generation Inference says of a wrong request.
        assert answer.status in (400, 422), (method, path)
        assert isinstance(json.loads(answer.body), dict)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_name_of_somebody_else_is_answered_to_probes_only(
    host: str, tmp_path: Path
) -> None:
    front_end = local(tmp_path)
    some = [("GET", "/nothing"), ("PUT", "/v1/models"), ("GET", "/v1/models"), ("GET", "/ping")]
    for method, path in paths(front_end) + some if host == FOREIGN[0] else some:
        answer = await ask(front_end, path, {"host": host}, method)
        assert (answer.status == 403) is (path not in PROBES), (method, path)
    await front_end.triton.close()
    body = (await ask(front_end, "/v1/models", {"host": host})).body.decode()
    assert f"{host} is not a name of this server" in body
    assert "--allowed-hosts" in body


@pytest.mark.parametrize("host", OWN)
async def test_the_servers_own_names_are_answered(host: str, tmp_path: Path) -> None:
    front_end = local(tmp_path)
    for path in ("/v1/models", "/version", "/"):
        assert (await ask(front_end, path, {"host": host})).status == 200, path
    own = {"host": host, "origin": f"http://{host}"}
    assert (await ask(front_end, "/v1/models", own)).status == 200


async def test_names_are_given_by_operators(tmp_path: Path) -> None:
    given = local(tmp_path, hosts=("My-Server", "[fe80::1]"), host="localhost")
    status = {
        host: (await ask(given, "/v1/models", {"host": host})).status
        for host in ("my-server:8080", "MY-SERVER.", "my-server.example", socket.gethostname())
    }
    assert list(status.values())[:3] == [200, 200, 403]
    assert list(status.values())[3] == 200
    every = local(tmp_path, hosts=("*",))
    assert (await ask(every, "/api/state", {"host": "evil.example"})).status == 200


async def test_on_the_network_names_are_known_to_those_who_give_them(tmp_path: Path) -> None:
    """A service, or a load balancer, has names that this server cannot know."""
    name = {"host": "lmi.models.svc.cluster.local:8080"}
    assert (await ask(local(tmp_path, host="0.0.0.0"), "/v1/models", name)).status == 200
    listed = local(tmp_path, host="0.0.0.0", hosts=("lmi.models.svc.cluster.local",))
    assert (await ask(listed, "/v1/models", name)).status == 200
    assert (await ask(listed, "/v1/models", {"host": "evil.example"})).status == 403
    assert (await ask(listed, "/ping", {"host": "evil.example"})).status == 503


async def test_no_probe_of_any_client_needs_a_key(tmp_path: Path) -> None:
    front_end = local(tmp_path, api_key="key")
    known = {"/ping", "/health", "/live", "/v2/health/live", "/v2/health/ready"}
    assert known | {"/v2/models/{model}/ready"} <= PROBES
    probes = {path.replace("{model}", "a").replace("{version}", "1") for path in PROBES}
    for path in probes:
        assert (await ask(front_end, path)).status in (200, 503), path
    front_end.drain()
    for path in probes:
        is_ready = path == "/live"
        assert ((await ask(front_end, path)).status == 200) is is_ready, path
    await front_end.triton.close()


async def test_where_keys_are_needed_a_name_is_enough_for_nothing(tmp_path: Path) -> None:
    front_end = local(tmp_path, api_key="key")
    foreign, key = {"host": "evil.example"}, {"authorization": "Bearer key"}
    assert (await ask(front_end, "/v1/models", foreign)).status == 401
    assert (await ask(front_end, "/v1/models", foreign | key)).status == 200
    for path in ("/api/state", "/models", "/"):
        assert (await ask(front_end, path, foreign | key)).status == 403, path


@pytest.mark.parametrize("key", [None, "", "Bearer", "Bearer wrong", "Basic Y2xpZW50LWtleQ=="])
async def test_who_has_no_key_is_asked_for_one(key: str | None, tmp_path: Path) -> None:
    headers = {} if key is None else {"authorization": key}
    answer = await ask(local(tmp_path, api_key="key"), "/v1/models", headers)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_clients_key_opens_no_path_of_operators(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"client {hash_of('a')}\n", "utf-8")
    front_end, seen = local(tmp_path, api_keys=file), 0
    for row, service in front_end.make_routes():
        for method in row.methods or () if service.who == OPERATOR else ():
            answer = await ask(front_end, row.path, {"authorization": "Bearer a"}, method)
            assert answer.status == 403, (method, row.path)
            seen += 1
    assert seen > 10


ORIGINS = (
    "null", "", "http://[", "[", "http://", "://", "localhost:8080", "http://localhost:99999",
    "http://user@localhost:8080", "http://localhost:8080/", "http://localhost:8081", "é",
    "http://evil.example", "http://127.0.0.1.evil.example", "file://", "http://localhost:8080 ",
    "http://localhost:8080, http://localhost:8080", "http:/localhost:8080",
)  # fmt: skip


async def test_an_origin_that_is_not_ours_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    front_end = local(tmp_path)
    for origin in ORIGINS:
        assert (await ask(front_end, "/v1/models", {"origin": origin})).status == 403, origin
    for method, path in paths(front_end):
        answer = await ask(front_end, path, {"origin": "http://["}, method)
        assert answer.status == 403, (method, path)
    assert not [record for record in caplog.records if record.exc_info]
    allowed = local(tmp_path, origins=("null",))
    assert (await ask(allowed, "/v1/models", {"origin": "null"})).status == 200


SDK = "authorization,content-type,x-stainless-arch,x-stainless-retry-count,anthropic-version"


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (SDK, SDK),
        ("anthropic-dangerous-direct-browser-access", "anthropic-dangerous-direct-browser-access"),
        ("x-of-nobody-yet, User-Agent", "x-of-nobody-yet, User-Agent"),
        (None, "authorization, content-type, x-api-key, x-request-id"),
        ("a\x00b", "authorization, content-type, x-api-key, x-request-id"),
    ],
)
async def test_a_page_that_may_ask_may_send_what_its_library_sends(
    asked: str | None, allowed: str, tmp_path: Path
) -> None:
    front_end = local(tmp_path, origins=("https://app.example",))
    headers = {"origin": "https://app.example", "access-control-request-method": "POST"}
    if asked is not None:
        headers["access-control-request-headers"] = asked
    paths = ("/v1/chat/completions", "/v1/messages", "/invocations", "/v2/models/x/generate")
    for path in (*paths, "/v1/files"):
        answer = await ask(front_end, path, headers, "OPTIONS")
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-headers"] == allowed
        other = await ask(front_end, path, headers | {"origin": "https://other.example"}, "OPTIONS")
        assert other.status == 403
        assert "access-control-allow-headers" not in other.headers
    # The page is told what is not served.
    answer = await ask(front_end, "/v1/files", {"origin": "https://app.example"})
    assert (answer.status, "access-control-allow-origin" in answer.headers) == (404, True)


async def test_head_is_answered_as_get_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server leaves the body out."""
    monkeypatch.setattr("lmi_backend.frontend.resumable._WAIT_SECONDS", 0.0)
    front_end = local(tmp_path)
    for method, path in paths(front_end):
        if method != "HEAD":
            continue
        answers = [await ask(front_end, path, None, each) for each in ("HEAD", "GET")]
        assert answers[0].status == answers[1].status, path
        assert answers[0].headers.keys() == answers[1].headers.keys(), path
    for each in (front_end.triton, front_end.control, front_end.metrics):
        await each.close()


async def test_the_server_as_a_whole_has_the_methods_of_its_paths(tmp_path: Path) -> None:
    """`OPTIONS *` tells whether a server is there, without a key."""
    front_end = FrontEnd(Settings(base=tmp_path, api_key="secret"))
    answer = await ask(front_end, "*", method="OPTIONS")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, POST, PUT"
    assert "content-length" not in answer.headers


@pytest.mark.parametrize("path", ["/v1/models", "/ping", "/v1/chat/completions", "/invocations"])
async def test_a_slash_at_the_end_changes_nothing(path: str, tmp_path: Path) -> None:
    front_end = local(tmp_path)
    method = "GET" if path in ("/v1/models", "/ping") else "POST"
    reply = await ask(front_end, path, None, method, body=b"{}")
    assert reply.status != 404 or b"is not served" not in reply.body
    for end in ("/", "//"):
        answer = await ask(front_end, path + end, None, method, body=b"{}")
        assert (answer.status, answer.body) == (reply.status, reply.body)
    wrong = await ask(front_end, f"{path}/", None, "PUT")
    assert (wrong.status, "allow" in wrong.headers) == (405, True)


def test_a_port_is_local_where_only_this_machine_reaches_it() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.0.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "my-server", "")))


def test_names_are_compared_without_case_and_port() -> None:
    assert [name_in(host) for host in ("A.b:1", "A.b.", "[::1]:", "[fe80::1%eth0]", "1.2.3.4")] == [
        "a.b", "a.b", "::1", "fe80::1%eth0", "1.2.3.4"
    ]  # fmt: skip
    access = Access(ApiKeys(None), (), ("A.b:1",), "Here")
    assert [access.owns(each) for each in ("a.b", "here", "b")] == [True, True, False]


def signed_by_botocore(key: str) -> str:
    request = AWSRequest("POST", "http://localhost:8080/endpoints/m/invocations", data=b"{}")
    SigV4Auth(Credentials(key, "secret"), "sagemaker", "eu-west-1").add_auth(request)
    header: str = request.headers["Authorization"]
    return header


async def test_the_key_of_a_signature_is_found_wherever_it_stands(tmp_path: Path) -> None:
    front_end = local(tmp_path, api_key="AKIA-key")
    header = signed_by_botocore("AKIA-key")
    kind, _, fields = header.partition(" ")
    parts = [part.strip() for part in fields.split(",")]
    assert [part.partition("=")[0] for part in parts] == [
        "Credential",
        "SignedHeaders",
        "Signature",
    ]
    for line in (
        header,
        f"{kind} {','.join(parts)}",
        f"{kind} {', '.join(reversed(parts))}",
        f"{kind}  {' , '.join((parts[1], parts[0], parts[2]))}",
    ):
        assert (await ask(front_end, "/v1/models", {"authorization": line})).status == 200, line
    for line in (
        signed_by_botocore("another"),
        f"{kind} {parts[1]}",
        kind,
        f"{kind} Credential",
        f"{kind} Credential=/a/b",
        f"{kind} credential=AKIA-key/a",
        f"{kind} XCredential=AKIA-key/a",
    ):
        assert (await ask(front_end, "/v1/models", {"authorization": line})).status == 401, line


PIECES = ("Credential=", "Credential=,", "Credential=a/", ",", " ", "=", "/", "a", "[", "Bearer ")


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "host", "origin", "x-request-id"])
def test_reading_a_header_takes_steps_in_proportion_to_its_size(name: str, tmp_path: Path) -> None:
    front_end = local(tmp_path, api_key="key")
    steps = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    def steps_for(size: int, piece: str) -> int:
        nonlocal steps
        value = "AWS4-HMAC-SHA256 " * (name == "authorization") + piece * (size // len(piece))
        request = ask(front_end, "/v1/models", {name: value})
        steps = 0
        sys.setprofile(count)
        try:
            # Nothing that it waits for is outside of it.
            request.send(None)
        except StopIteration:
            return steps
        finally:
            sys.setprofile(None)
        raise AssertionError("the request waits")

    for piece in PIECES:
        # The first request imports and compiles.
        steps_for(1, piece)
        assert steps_for(65_000, piece) <= 4.2 * steps_for(16_250, piece), piece


async def test_a_fault_of_ours_is_logged_once_with_the_requests_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("x\nforged")

    caplog.set_level(logging.INFO)
    front_end = local(tmp_path)
    monkeypatch.setattr(Access, "check_site", fail)
    sent = {"x-request-id": "1 key=boss status=200"}
    answer = await ask(front_end, "/v1/models\nforged\u2028", sent)
    assert (answer.status, answer.headers["x-request-id"]) == (500, sent["x-request-id"])
    failed, access = caplog.messages
    assert failed.endswith("failed id=1%20key%3Dboss%20status%3D200")
    assert "id=1%20key%3Dboss%20status%3D200 key=-" in access
    assert access.count("status=") == access.count("key=") == 1


async def test_who_only_looks_leaves_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A page, a router and `serve` itself look each second; operators read the log."""
    caplog.set_level(logging.INFO)
    front_end = local(tmp_path)
    for path in ("/v1/models", "/api/state", "/"):
        assert (await ask(front_end, path)).status < 400
    assert (await ask(front_end, "/ping", {"user-agent": OWN_AGENT})).status == 503
    assert not caplog.messages
    for path in ("/ping", "/ping", "/v1/models/none"):
        await ask(front_end, path)
    assert [line.split()[1] for line in caplog.messages] == ["/ping", "/v1/models/none"]
    caplog.set_level(logging.DEBUG)
    await ask(front_end, "/v1/models")
    await ask(front_end, "/ping")
    assert caplog.messages[-1].startswith("GET /v1/models status=200")
    assert len(caplog.messages) == 3
