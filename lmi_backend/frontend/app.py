"""The front end as an ASGI application: paths, limits, errors, the access log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.registry import CLIENTS, client_near
from lmi_backend.clients.spec import ANYBODY, OPERATOR, PROBE
from lmi_backend.clients.unserved import UNSERVED_PATHS
from lmi_backend.errors import HttpError, LmiError, StoppingError
from lmi_backend.front_end_settings import OWN_AGENT
from lmi_backend.frontend.answer import CLIENT_LEFT
from lmi_backend.frontend.answering import Answering
from lmi_backend.frontend.http.access import Access
from lmi_backend.frontend.http.api_keys import ApiKeys, OtherProcessError
from lmi_backend.frontend.http.bodies import ALL_BODIES, Bodies, ClientGoneError
from lmi_backend.frontend.http.exchange import Exchange
from lmi_backend.frontend.http.log import as_field
from lmi_backend.frontend.http.routing import Near, Responder, Route, Routes, route
from lmi_backend.frontend.listing import Listing
from lmi_backend.frontend.model_control import ModelControl
from lmi_backend.frontend.models import Models, Starting, find_models
from lmi_backend.frontend.operators import api_description, state
from lmi_backend.frontend.operators.health import STOPPING, HealthChecks
from lmi_backend.frontend.operators.management import Management
from lmi_backend.frontend.operators.metrics import Metrics
from lmi_backend.frontend.operators.web_page import PATHS, WebPage
from lmi_backend.frontend.reading import Reading
from lmi_backend.frontend.triton import TritonProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.clients.spec import Who
    from lmi_backend.front_end_settings import Settings
    from lmi_backend.frontend.http.exchange import Receive, Send

_log = logging.getLogger(__name__)

_Answer = Callable[["Exchange"], Awaitable[None]]
_PRINTABLE_ID: Final = 128
_PATH_LETTERS: Final = 200
_LOOKS: Final = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


class FrontEnd:
    """The application; `run` keeps it in touch with the models."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.control = ModelControl(settings.triton_url, settings.control_headers)
        starting = Starting(settings.awaited, self.control.index)
        self.models = Models(settings.base, starting, settings.awaited)
        largest = settings.max_body
        self._bodies = Bodies(ALL_BODIES * largest, largest, settings.client_seconds)
        self.metrics = Metrics(self.models, settings.metrics_url)
        self.health = HealthChecks(self.models, settings.required)
        self._reading = Reading(self.models)
        self._answering = Answering(self._reading)
        self.triton = TritonProxy(settings.triton_url)
        keys = ApiKeys(settings.api_keys, settings.api_key, settings.processes, settings.place)
        self._access = Access(keys, settings.origins, settings.hosts, settings.host)
        self.routes = Routes(self.make_routes())
        self._is_leaving = False
        self._probed: dict[str, int] = {}
        """Path of a probe to the status it had last."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        looking = asyncio.gather(self.models.run(), self.models.starting.run())
        await find_models(self.models, self._settings.base)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        for each in (self.triton, self.control, self.metrics):
            await each.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        service, matched = self._find(scope)
        exchange = Exchange(scope | matched if matched else scope, receive, send, self._bodies)
        exchange.spec = service.client
        given = exchange.headers.get("x-request-id", "")
        is_usable = given.isprintable() and len(given) <= _PRINTABLE_ID
        exchange.request_id = given if given and is_usable else secrets.token_hex(16)
        exchange.extra_headers.append((b"x-request-id", exchange.request_id.encode("latin-1")))
        if self._is_leaving or (self.health.is_stopping and not service.needs_key):
            exchange.extra_headers.append((b"connection", b"close"))
        try:
            await self._answer(service, exchange)
        except ClientGoneError:
            exchange.status = exchange.status or CLIENT_LEFT
        except LmiError as error:
            await self._fail(exchange, error)
        except Exception:  # noqa: BLE001  one request must not end the others
            path, name = exchange.raw_path[:_PATH_LETTERS], as_field(exchange.request_id)
            _log.exception("%s %s failed id=%s", exchange.method, path, name)
            text = "the request failed; the log says why"
            await self._fail(exchange, HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, text))
        finally:
            exchange.close()
            if self._settings.logs_access:
                self._log_access(exchange, self._level(service, exchange))

    def drain(self) -> None:
        """Refuse requests from now on: the server stops. Those that run continue."""
        self.health.is_stopping = True
        self.models.outages.close()

    def leave(self) -> None:
        """Have clients reconnect, to the next front end."""
        self._is_leaving = True

    async def _answer(self, service: Responder, exchange: Exchange) -> None:
        self._access.check_site(exchange, service.who)
        if not service.needs_key:
            await service.answer(exchange)
            return
        key = self._access.key(exchange, for_operator=service.who == OPERATOR)
        exchange.is_operator = self._access.is_operator(key)
        if key is not None:
            exchange.tenant = key.name
            exchange.client.belong_to(key.name)
            exchange.key_digest = key.digest
            exchange.has_token_limit = key.has_token_limit
            key.enter(is_back=service.resumed is not None and self._answering.is_back(exchange))
            exchange.key = key
        try:
            path = service.resumed
            if path is not None and await self._answering.come_back(path, exchange):
                return
            if self.health.is_stopping:
                raise StoppingError(STOPPING)
            await service.answer(exchange)
        finally:
            if exchange.key is not None:
                exchange.key.leave(exchange.num_tokens + exchange.num_prompt_tokens)

    async def _fail(self, exchange: Exchange, error: LmiError) -> None:
        exchange.error = type(error).__name__
        if isinstance(error, OtherProcessError):
            exchange.extra_headers.append((b"connection", b"close"))
        # An answer that has begun is left without its end: its client must not take it for whole.
        if not exchange.has_begun:
            await exchange.respond(*exchange.spec.failure(error))

    def _level(self, service: Responder, exchange: Exchange) -> int:
        """Return the level of a request's line; `NOTSET` for no line.

        Pages, probes and scrapers send many: those that fail are of interest, and of a probe the
        first.
        """
        if service.who == PROBE:
            if exchange.headers.get("user-agent") == OWN_AGENT:
                return logging.NOTSET
            latest = self._probed.get(exchange.path, HTTPStatus.OK)
            self._probed[exchange.path] = exchange.status
            return logging.INFO if exchange.status != latest else logging.NOTSET
        has_failed = bool(exchange.error) or exchange.status >= HTTPStatus.BAD_REQUEST
        # The rest of a stream is fetched by GET, and has tokens.
        if has_failed or exchange.num_tokens or exchange.method not in _LOOKS:
            return logging.INFO
        return logging.DEBUG if service.needs_key else logging.NOTSET

    def _log_access(self, exchange: Exchange, level: int) -> None:
        if not _log.isEnabledFor(level):
            return
        _log.log(
            level,
            "%s %s status=%d outcome=%s error=%s"
            " ms=%.1f prompt_tokens=%d tokens=%d id=%s key=%s model=%s client=%s",
            exchange.method,
            exchange.raw_path[:_PATH_LETTERS],
            exchange.status,
            exchange.outcome,
            exchange.error or "-",
            (time.monotonic() - exchange.began) * 1e3,
            exchange.num_prompt_tokens,
            exchange.num_tokens,
            as_field(exchange.request_id),
            exchange.tenant or "-",
            as_field(exchange.model) or "-",
            exchange.address or "-",
        )

    def _find(self, scope: dict[str, Any]) -> tuple[Responder, dict[str, Any]]:
        service, matched, allowed = self.routes.find(scope)
        # Clients add their path to the end of a base URL, be it a query.
        query = scope["query_string"].decode("latin-1").partition("/")
        is_in_query = query[1] and scope["path"] == "/" and scope["method"] == "POST"
        if service is not None and not is_in_query:
            return service, matched
        path: str = scope["path"].rstrip("/") + query[1] + query[2]
        near = None if allowed or path in UNSERVED_PATHS else self.routes.near(path)
        client = near.client if near else self.routes.client_of(path) or client_near(path)
        # Browsers ask this before they send a key, and show a page no 404 that they did not send.
        is_preflight = any(name == b"access-control-request-method" for name, _ in scope["headers"])
        if scope["method"] == "OPTIONS" and (allowed or is_preflight):
            return Responder(_methods(allowed), client, ANYBODY), {}
        return Responder(_refusal(allowed, near), client), {}

    def make_routes(self) -> Iterator[tuple[Route, Responder]]:
        actions = self._actions()
        for client in CLIENTS.values():
            for path in client.paths:
                if path.member:
                    continue
                is_read = path.action in self._reading.actions
                answer = partial(self._answering, path) if is_read else actions[path.action]
                resumed = path if path.action in self._answering.resumed else None
                service = Responder(answer, client, path.who, resumed)
                yield route(path.template, path.methods), service
        own: list[tuple[str, _Answer, Who]] = [
            ("/metrics", self.metrics.show, ANYBODY),
            ("/api/state", partial(state.show, self.models), OPERATOR),
        ]
        if self._settings.has_page:
            page = WebPage(self._access)
            own += ((path, page.show, ANYBODY) for path in PATHS)
        for template, answer, who in own:
            yield route(template, "GET"), Responder(answer, CLIENTS["openai"], who)

    def _actions(self) -> dict[str, _Answer]:
        listing, health = Listing(self.models), self.health
        management = Management(self.models, self.control)
        return {
            "list models": listing.models,
            "show model": listing.model,
            "info": listing.info,
            "triton": self.triton,
            "triton ready": self._triton_ready,
            "ping": health.ping,
            "live": health.live,
            "version": health.version,
            "describe paths": partial(api_description.show, self.models),
            "load": self.metrics.load,
            "list registered": management.list,
            "register": management.register,
            "describe": management.describe,
            "unregister": management.unregister,
        }

    async def _triton_ready(self, exchange: Exchange) -> None:
        if self.health.is_stopping:
            raise StoppingError(STOPPING)
        await self.triton(exchange)


def _methods(allowed: set[str]) -> _Answer:
    async def say(exchange: Exchange) -> None:
        exchange.extra_headers.append((b"allow", ", ".join(sorted(allowed)).encode()))
        await exchange.respond(204, b"", {})

    return say


def _refusal(allowed: set[str], near: Near | None) -> _Answer:
    async def refuse(exchange: Exchange) -> None:
        text = f"{exchange.path[:_PATH_LETTERS]!r} is not served"
        if exchange.headers.get("upgrade", "").lower() == "websocket":
            raise HttpError(HTTPStatus.NOT_FOUND, f"{text} as a WebSocket: no path is")
        if reason := UNSERVED_PATHS.get(exchange.path):
            raise HttpError(HTTPStatus.NOT_FOUND, f"{text}: {reason}")
        status = HTTPStatus.NOT_FOUND
        if allowed:
            status, text = HTTPStatus.METHOD_NOT_ALLOWED, f"{exchange.method} is not served here"
            exchange.extra_headers.append((b"allow", ", ".join(sorted(allowed)).encode()))
        if "/" in exchange.query:
            text += "; remove '?' and what follows from the client's base URL"
        elif near:
            text += f"; {near.advice}"
        raise HttpError(status, text)

    return refuse
