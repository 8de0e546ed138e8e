"""What Triton gets of a request, and what its client gets back."""

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from lmi_backend.errors import HttpError, UnavailableError
from lmi_backend.frontend.http.exchange import Exchange
from lmi_backend.frontend.http.protocol import CLIENT
from lmi_backend.frontend.triton import TritonProxy
from tests.support.answers.triton_bodies import LENGTH, element, inference, plain, tensor

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
INFER = "/v2/models/m/infer"
BODY = plain(inference())[1]


class Got(NamedTuple):
    """What a Triton got."""

    line: str
    headers: dict[str, str]
    data: bytes


class Triton:
    """A Triton that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self.inputs: list[dict[str, str]] = [{"name": "request", "datatype": "BYTES"}]
        self.status, self.text, self.breaks = 200, "", False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        line = f"{request.method} {request.path_qs}"
        self.got.append(Got(line, headers, await request.read()))
        answer_headers = {"content-type": "application/json", "set-cookie": "a=b", LENGTH: "3"}
        if request.path.endswith("_stream"):
            answer_headers["content-type"] = "text/event-stream"
        if self.breaks:
            response = web.StreamResponse(headers=answer_headers)
            await response.prepare(request)
            await response.write(b'{"error": 1}')
            assert request.transport is not None
            request.transport.close()
            return response
        text = self.text or json.dumps({"inputs": self.inputs, "pad": "y" * 60})
        return web.Response(text=text, headers=answer_headers, status=self.status)


class NoClient:
    is_gone = False
    has_begun = True
    on_gone: Any = None


@pytest.fixture
def triton() -> Triton:
    return Triton()


@pytest_asyncio.fixture
async def proxy(triton: Triton) -> AsyncIterator[TritonProxy]:
    application = web.Application()
    application.router.add_route("*", "/{rest:.*}", triton.answer)
    async with TestServer(application) as server:
        proxy = TritonProxy(f"http://{server.host}:{server.port}")
        yield proxy
        await proxy.close()


async def sent(
    proxy: TritonProxy,
    path: str,
    data: bytes = b"",
    tenant: str = "",
    *,
    written: list[bytes] | None = None,
    **headers: str,
) -> tuple[Exchange, dict[str, bytes]]:
    """Have a request answered; return its exchange, and the headers of its response."""
    begun: dict[str, bytes] = {}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Any) -> None:
        begun.update({name.decode(): value for name, value in message.get("headers", ())})
        if written is not None:
            written.append(message.get("body", b""))

    given = {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
    path, _, query = path.partition("?")
    scope = {
        "method": "POST" if data else "GET", "path": path, "query_string": query.encode(),
        "headers": pairs, CLIENT: NoClient(),
    }  # fmt: skip
    exchange = Exchange(scope, receive, send)
    exchange.tenant, exchange.is_operator = tenant, not tenant
    await proxy(exchange)
    return exchange, begun


async def test_nothing_of_a_client_reaches_it_but_what_is_read(
    proxy: TritonProxy, triton: Triton
) -> None:
    headers = {
        "authorization": "Bearer a", "cookie": "a=b", "x-api-key": "a", "x-any": "b",
        "triton-control-key": "c", "content-type": "text/evil", "user-agent": "evil",
        "expect": "100-continue", "transfer-encoding": "chunked",
        "endpoint-load-metrics-format": "x", "accept-encoding": "br, gzip;q=1.0",
        "traceparent": TRACE, "tracestate": "a=b",
    }  # fmt: skip
    await sent(proxy, INFER, BODY, **headers)
    (got,) = triton.got
    assert got.line == f"POST {INFER}"
    assert json.loads(got.data) == inference()
    assert {n: v for n, v in got.headers.items() if n not in ("host", "content-length")} == {
        "content-type": "application/json", "traceparent": TRACE, "tracestate": "a=b",
        "accept-encoding": "gzip",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("accepted", "passed"),
    [
        ("", "identity"), ("gzip", "gzip"), ("deflate, gzip", "deflate"), ("br", "identity"),
        ("gzip;q=0", "identity"), ("gzip; q=0.000, deflate", "deflate"), ("*", "identity"),
        ("GZIP", "gzip"), ("gzip\u00ff", "identity"), ("identity, gzip;q=0.5", "gzip"),
    ],
)  # fmt: skip
async def test_it_compresses_for_who_wants_it(
    proxy: TritonProxy, triton: Triton, accepted: str, passed: str
) -> None:
    await sent(proxy, INFER, BODY, **{"accept-encoding": accepted})
    assert triton.got[0].headers["accept-encoding"] == passed


async def test_a_client_gets_its_answer_and_no_other_headers(proxy: TritonProxy) -> None:
    exchange, begun = await sent(proxy, INFER, BODY)
    assert set(begun) == {"content-type", "content-length", LENGTH}
    assert exchange.status == 200


async def test_a_path_has_one_spelling_no_query_and_no_body(
    proxy: TritonProxy, triton: Triton
) -> None:
    await sent(proxy, "/v2/models/m/")
    assert triton.got[0][::2] == ("GET /v2/models/m", b"")
    for path, status in (("/v2?a=b", 400), ("/v2/repository/index", 404), (INFER, 405)):
        with pytest.raises(HttpError) as refusal:
            await sent(proxy, path)
        assert refusal.value.status == status
    assert len(triton.got) == 1


@pytest.mark.parametrize("length", ["+5", "5 abc", "-1", "0x1", "\uff15".encode().decode("latin-1"),
                                    "9" * 5000, "99999999999", "999", "", " "])  # fmt: skip
async def test_a_length_that_is_none_is_refused(
    proxy: TritonProxy, triton: Triton, length: str
) -> None:
    with pytest.raises(HttpError, match="Inference-Header-Content-Length") as refusal:
        await sent(proxy, INFER, BODY, **{LENGTH: length})
    assert (refusal.value.status, triton.got) == (400, [])


async def test_a_length_counts_on_infer_only(proxy: TritonProxy, triton: Triton) -> None:
    await sent(proxy, INFER, b"  " + BODY, **{LENGTH: str(len(BODY) + 2)})
    assert triton.got[0].headers[LENGTH] == str(len(triton.got[0].data))
    await sent(proxy, "/v2/models/m/generate", b'{"a": 1}', **{LENGTH: "0"})
    assert LENGTH not in triton.got[1].headers


async def test_a_tenant_is_named(proxy: TritonProxy, triton: Triton) -> None:
    await sent(proxy, INFER, BODY, "mine")
    assert json.loads(triton.got[0].data)["parameters"]["tenant"] == "mine"
    await sent(proxy, "/v2/models/m/generate", b'{"a": 1, "tenant": "b"}', "mine")
    assert json.loads(triton.got[1].data) == {"a": 1, "tenant": "mine"}


async def test_a_tenant_is_named_where_a_body_is_raw(proxy: TritonProxy, triton: Triton) -> None:
    raw = {LENGTH: "0"}
    await sent(proxy, INFER, b"[[", **raw)
    assert (triton.got[0].headers[LENGTH], triton.got[0].data) == ("0", b"[[")
    await sent(proxy, "/v2/models/m/versions/1/infer", b"[[", "mine", **raw)
    asked, got = triton.got[1:]
    assert asked.line == "GET /v2/models/m/versions/1"
    size = int(got.headers[LENGTH])
    assert json.loads(got.data[:size])["parameters"]["tenant"] == "mine"
    assert got.data[size:] == element(b"[[")
    # It is no model of ours: Triton makes of it what it can.
    triton.inputs = [{"name": "a", "datatype": "FP32"}]
    await sent(proxy, INFER, b"[[", "mine", **raw)
    assert triton.got[-1].data == b"[["


async def test_bodies_and_answers_count_as_tokens(proxy: TritonProxy, triton: Triton) -> None:
    exchange, begun = await sent(proxy, INFER, BODY, "mine")
    size = len(triton.got[0].data)
    assert exchange.num_prompt_tokens == -(-size // 4)
    assert exchange.num_tokens == -(-int(begun["content-length"]) // 4)
    exchange, _ = await sent(proxy, "/v2/models/m")
    assert exchange.num_prompt_tokens == exchange.num_tokens == 0
    triton.status = 400
    exchange, _ = await sent(proxy, INFER, BODY, "mine")
    assert exchange.num_prompt_tokens == exchange.num_tokens == 0


async def test_an_order_about_adapters_is_for_operators(proxy: TritonProxy, triton: Triton) -> None:
    text = '{"requestType": "LIST_ADAPTERS"}'
    roads = (
        (INFER, plain(inference(tensor("request", text)))[1], {}),
        (INFER, text.encode(), {LENGTH: "0"}),
        ("/v2/models/m/generate", json.dumps({"request": text}).encode(), {}),
    )
    for path, data, headers in roads:
        with pytest.raises(HttpError) as refusal:
            await sent(proxy, path, data, "mine", **headers)
        assert refusal.value.status == 403
        await sent(proxy, path, data, **headers)
    assert [each.line.split()[0] for each in triton.got].count("POST") == len(roads)


async def test_json_in_json_has_no_more_values_than_json(
    proxy: TritonProxy, triton: Triton
) -> None:
    many = "[" + "0," * 310_000 + "1]"
    for name, is_read in (("request", True), ("sampling_parameters", True), ("text_input", False)):
        roads = (
            (INFER, plain(inference(tensor(name, many)))[1], {}),
            ("/v2/models/m/generate", json.dumps({name: many}).encode(), {}),
            ("/v2/models/m/generate", json.dumps({"parameters": {name: many}}).encode(), {}),
            *([(INFER, many.encode(), {LENGTH: "0"})] if is_read else []),
        )
        for path, data, headers in roads:
            if not is_read:
                await sent(proxy, path, data, **headers)
                continue
            with pytest.raises(HttpError, match="at most 300000"):
                await sent(proxy, path, data, **headers)
    assert len(triton.got) == 3


async def test_a_stream_says_that_triton_has_ended(proxy: TritonProxy, triton: Triton) -> None:
    triton.breaks = True
    written: list[bytes] = []
    exchange, _ = await sent(proxy, "/v2/models/m/generate_stream", b"{}", written=written)
    event = b'data: {"error":"tritonserver exited before the answer was complete"}\n\n'
    assert b"".join(written) == b'{"error": 1}' + event
    assert exchange.error


async def test_an_error_event_of_triton_is_an_error_of_the_log(
    proxy: TritonProxy, triton: Triton
) -> None:
    triton.text = 'data: {"error":"no"}\n\n'
    exchange, _ = await sent(proxy, "/v2/models/m/generate_stream", b"{}")
    assert exchange.error == "EngineError"


async def test_an_error_has_its_own_status(proxy: TritonProxy, triton: Triton) -> None:
    triton.status = 400
    for start in ("", "data: "):
        triton.text = start + '{"error":"UNAVAILABLE: a \\"queue\\" is full"}\n'
        with pytest.raises(HttpError, match=r'^a "queue" is full$') as raised:
            await sent(proxy, "/v2/models/m/generate", b"{}")
        assert raised.value.status == 503


async def test_a_triton_that_is_not_there_is_said() -> None:
    proxy = TritonProxy("http://127.0.0.1:9")
    for headers in ({}, {LENGTH: "0"}):
        with pytest.raises(UnavailableError, match="HTTP port"):
            await sent(proxy, INFER, BODY, "mine", **headers)
    await proxy.close()
