"""The front end as an ASGI application: paths, limits, errors, the access log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import HttpError, LmiError, StoppingError
from lmi_backend.frontend.access import Access
from lmi_backend.frontend.api_keys import ApiKeys
from lmi_backend.frontend.bodies import ALL_BODIES, Bodies, ClientGoneError
from lmi_backend.frontend.exchange import Exchange
from lmi_backend.frontend.failures import (
    lmi_failure,
    openai_failure,
    tgi_failure,
    triton_failure,
)
from lmi_backend.frontend.generate import Generate
from lmi_backend.frontend.health import STOPPING, Health
from lmi_backend.frontend.hosts import OwnNames, is_loopback
from lmi_backend.frontend.http_form import dialect_of
from lmi_backend.frontend.lmi import Lmi
from lmi_backend.frontend.log import as_field
from lmi_backend.frontend.management import Management
from lmi_backend.frontend.metrics import Metrics
from lmi_backend.frontend.model_control import ModelControl
from lmi_backend.frontend.models import Models
from lmi_backend.frontend.openai import BODIES, OpenAi
from lmi_backend.frontend.relay import CLIENT_LEFT
from lmi_backend.frontend.routing import ANYBODY, OPERATOR, PROBE, Routes, Service, Who, route
from lmi_backend.frontend.sagemaker import SageMaker, sagemaker_failure
from lmi_backend.frontend.starting import Starting
from lmi_backend.frontend.state import State
from lmi_backend.frontend.tgi import Tgi
from lmi_backend.frontend.triton import TritonProxy
from lmi_backend.frontend.web_page import PATHS, WebPage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.routing import Route

    from lmi_backend.frontend.exchange import Receive, Send
    from lmi_backend.frontend.failures import Failure

_log = logging.getLogger(__name__)

_Answer = Callable[["Exchange"], Awaitable[None]]
_Fail = Callable[[LmiError], "Failure"]
_Row = tuple[str, str, _Answer, _Fail] | tuple[str, str, _Answer, _Fail, "Who"]
_PRINTABLE_ID: Final = 128
_SHOWN_PATH: Final = 200
_FAILED: Final = 400


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a front end serves, and within which limits."""

    base: Path
    """Folder for temporary files of the server, or its supervisor's run folder."""
    triton_url: str = "http://127.0.0.1:8000"
    """Triton's own HTTP port."""
    metrics_url: str = "http://127.0.0.1:8002/metrics"
    """Triton's own metrics."""
    control_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The key of its model repository."""
    awaited: tuple[str, ...] = ()
    """Models that its supervisor loads at each start; empty where nobody says."""
    max_body: int = 64 << 20
    """Bytes."""
    client_seconds: float = 60.0
    """Time a client may take to send its headers, its body, or to take what it is sent."""
    keep_alive_seconds: float = 65.0
    """Time a connection may do nothing."""
    logs_access: bool = True
    api_keys: Path | None = None
    """File of keys; None where `api_key` is the only one, or nobody needs one."""
    api_key: str = ""
    """One key, itself."""
    host: str = "127.0.0.1"
    """Address or name on which the port listens."""
    processes: int = 1
    """That share the port, and the limits of each key."""
    origins: tuple[str, ...] = ()
    """Web sites whose pages may ask."""
    hosts: tuple[str, ...] = ()
    """Names by which the port is reached, in addition to its addresses and localhost."""
    has_page: bool = True
    """Whether browsers get a page at `/`."""


class FrontEnd:
    """The application; `run` keeps it in touch with the models."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._control = ModelControl(settings.triton_url, settings.control_headers)
        self._starting = Starting(settings.awaited, self._control.index)
        self.models = Models(settings.base, self._starting)
        self._bodies = Bodies(ALL_BODIES * settings.max_body)
        self._metrics = Metrics(self.models, settings.metrics_url)
        self._health = Health(self.models)
        limits = settings.max_body, settings.client_seconds
        self._triton = TritonProxy(settings.triton_url, *limits, Generate(self.models))
        keys = ApiKeys(settings.api_keys, settings.api_key, settings.processes)
        names = OwnNames(settings.hosts, settings.host)
        is_local = is_loopback(settings.host)
        self._access = Access(keys, settings.origins, names, is_local=is_local)
        self._routes = Routes(self._make_routes())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; ASGI's entry."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        looking = asyncio.gather(self.models.run(), self._starting.run())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        await self._triton.close()
        await self._control.close()
        await self._metrics.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        service, found = self._find(scope)
        exchange = Exchange(scope | found, receive, send, self._bodies)
        given = exchange.headers.get("x-request-id", "")
        is_usable = given.isprintable() and len(given) <= _PRINTABLE_ID
        exchange.request_id = given if given and is_usable else secrets.token_hex(16)
        exchange.extra_headers.append((b"x-request-id", exchange.request_id.encode("latin-1")))
        try:
            await self._answer(service, exchange)
        except ClientGoneError:
            exchange.status = exchange.status or CLIENT_LEFT
        except LmiError as error:
            await self._fail(exchange, service, error)
        except Exception:  # noqa: BLE001  one request must not end the others
            path, name = exchange.raw_path[:_SHOWN_PATH], as_field(exchange.request_id)
            _log.exception("%s %s failed id=%s", exchange.method, path, name)
            failed = HttpError(500, "the request failed; the log says why")
            await self._fail(exchange, service, failed)
        finally:
            exchange.close()
            # Probes and scrapers come often, and are of interest where they fail.
            if service.needs_key or exchange.status >= _FAILED:
                self._log_access(exchange)

    def drain(self) -> None:
        """Refuse requests from now on: the server stops. Those that run go on."""
        self._health.is_stopping = True
        self.models.give_up_held()

    async def _answer(self, service: Service, exchange: Exchange) -> None:
        if self._health.is_stopping:
            if service.needs_key:
                raise StoppingError(STOPPING)
            exchange.extra_headers.append((b"connection", b"close"))
        self._access.check_site(exchange, service.who)
        if not service.needs_key:
            await service.answer(exchange)
            return
        key = self._access.key(exchange, for_operator=service.who == OPERATOR)
        exchange.is_operator = self._access.is_operator(key)
        if key is None:
            await service.answer(exchange)
            return
        key.enter()
        exchange.tenant, exchange.has_token_limit = key.name, key.has_token_limit
        try:
            await service.answer(exchange)
        finally:
            key.leave(exchange.num_tokens + exchange.num_prompt_tokens)

    async def _fail(self, exchange: Exchange, service: Service, error: LmiError) -> None:
        exchange.error = type(error).__name__
        # An answer that has begun is left without its end: its client must not take it for whole.
        if not exchange.has_begun:
            await exchange.respond(*service.failure_of(error))

    def _log_access(self, exchange: Exchange) -> None:
        if self._settings.logs_access:
            _log.info(
                "%s %s status=%d outcome=%s error=%s"
                " ms=%.1f prompt_tokens=%d tokens=%d id=%s key=%s",
                exchange.method,
                exchange.raw_path[:_SHOWN_PATH],
                exchange.status,
                exchange.outcome,
                exchange.error or "-",
                (time.monotonic() - exchange.began) * 1e3,
                exchange.num_prompt_tokens,
                exchange.num_tokens,
                as_field(exchange.request_id),
                exchange.tenant or "-",
            )

    def _find(self, scope: dict[str, Any]) -> tuple[Service, dict[str, Any]]:
        service, found, allowed = self._routes.find(scope)
        if service is not None:
            return service, found
        failure_of = self._routes.failure_of(scope) or dialect_of(scope["path"]).failure
        if allowed and scope["method"] == "OPTIONS":
            # Browsers ask this before they send a key.
            return Service(_methods(allowed), failure_of, ANYBODY), {}
        return Service(_refusal(allowed), failure_of), {}

    def _make_routes(self) -> Iterator[tuple[Route, Service]]:
        limits = self._settings.max_body, self._settings.client_seconds
        openai, lmi = OpenAi(self.models, *limits), Lmi(self.models, *limits)
        sagemaker = SageMaker(lmi)
        tgi, health = Tgi(self.models, *limits), self._health
        of_model, endpoint = "/models/{model}", "/endpoints/{endpoint}"
        of_adapter = f"{of_model}/adapters/{{adapter}}"
        streamed = f"{endpoint}/invocations-response-stream"
        table: tuple[_Row, ...] = (
            *(("POST", path, openai.body, dialect_of(path).failure) for path in BODIES),
            ("GET", "/v1/models", openai.models, openai_failure),
            ("GET", "/v1/models/{model:path}", openai.model, openai_failure),
            ("GET DELETE", "/v1/responses/{id}", openai.stored, openai_failure),
            ("POST", "/v1/responses/{id}/cancel", openai.stored, openai_failure),
            ("POST", "/v1/load_lora_adapter", openai.load_adapter, openai_failure, OPERATOR),
            ("POST", "/v1/unload_lora_adapter", openai.unload_adapter, openai_failure, OPERATOR),
            ("POST", "/invocations", lmi.invocations, lmi_failure),
            ("POST", "/predictions/{model}", lmi.invocations, lmi_failure),
            ("POST", f"{of_model}/invoke", lmi.invocations, lmi_failure),
            ("POST", f"{endpoint}/invocations", sagemaker.invoke, sagemaker_failure),
            ("POST", streamed, sagemaker.invoke_stream, sagemaker_failure),
            ("GET", "/models/{model}/adapters", lmi.adapters, lmi_failure),
            ("POST", "/models/{model}/adapters", lmi.adapters, lmi_failure, OPERATOR),
            ("GET", of_adapter, lmi.adapters, lmi_failure),
            ("PUT DELETE", of_adapter, lmi.adapters, lmi_failure, OPERATOR),
            ("GET", "/adapters", lmi.adapters, lmi_failure),
            ("POST", "/adapters", lmi.adapters, lmi_failure, OPERATOR),
            ("DELETE", "/adapters/{adapter}", lmi.adapters, lmi_failure, OPERATOR),
            ("POST", "/generate", tgi.generate, tgi_failure),
            ("POST", "/generate_stream", tgi.generate_stream, tgi_failure),
            ("POST", "/", tgi.either, tgi_failure),
            ("GET", "/info", tgi.info, tgi_failure),
            *(("GET", path, health.ping, lmi_failure, PROBE) for path in ("/ping", "/health")),
            ("GET", "/live", health.live, lmi_failure, PROBE),
            ("GET", "/version", health.version, openai_failure, ANYBODY),
            ("GET", "/metrics", self._metrics.show, openai_failure, ANYBODY),
            ("GET", "/api/state", State(self.models).show, openai_failure, OPERATOR),
            ("GET POST", "/v2", self._triton, triton_failure),
            ("GET POST", "/v2/{rest:path}", self._triton, triton_failure),
        )
        for methods, path, *service in (*table, *self._management_rows(), *self._page_rows()):
            yield route(path, methods), Service(*service)

    def _management_rows(self) -> Iterator[_Row]:
        limits = self._settings.max_body, self._settings.client_seconds
        management = Management(self.models, self._control, *limits)
        for method, path, answer in management.paths():
            yield method, path, answer, lmi_failure, OPERATOR

    def _page_rows(self) -> tuple[_Row, ...]:
        if not self._settings.has_page:
            return ()
        page = WebPage(self._access)
        return tuple(("GET", path, page.show, lmi_failure, ANYBODY) for path in PATHS)


def _methods(allowed: set[str]) -> _Answer:
    async def say(exchange: Exchange) -> None:
        exchange.extra_headers.append((b"allow", ", ".join(sorted(allowed)).encode()))
        await exchange.respond(204, b"", {})

    return say


def _refusal(allowed: set[str]) -> _Answer:
    async def refuse(exchange: Exchange) -> None:
        if not allowed:
            raise HttpError(404, f"{exchange.path[:_SHOWN_PATH]!r} is not served")
        exchange.extra_headers.append((b"allow", ", ".join(sorted(allowed)).encode()))
        raise HttpError(405, f"{exchange.method} is not served here")

    return refuse
