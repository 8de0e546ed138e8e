"""The few HTTP calls the commands make to Triton, and to the front end."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from lmi_backend.errors import ConfigurationError, UnavailableError


class TritonHttp:
    """Triton's HTTP port at a URL such as http://127.0.0.1:8000.

    A read may take `timeout` seconds; None: as long as it takes. Headers are sent with each call.
    With `context` certificates are checked otherwise.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float | None = 300.0,
        headers: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"{url}: accepted: http://HOST:PORT")
        is_https = parts.scheme == "https"
        self.url, self.host = url, parts.hostname
        self.port = parts.port or (443 if is_https else 80)
        secure = partial(HTTPSConnection, context=context)
        kind: Callable[..., HTTPConnection] = secure if is_https else HTTPConnection
        self._connect = partial(kind, self.host, self.port, timeout=timeout)
        self._headers = dict(headers or {})

    def index(self) -> list[dict[str, Any]]:
        """Return the models of the server, each with `name`, `version`, `state` and `reason`."""
        models = self.json("/v2/repository/index", method="POST", body={})
        if not isinstance(models, list):
            message = f"{self.url}: does not list its models: {models.get('error', models)}"
            raise UnavailableError(message)
        return models

    def states(self) -> dict[str, tuple[str, str]] | None:
        """Return state and reason of each model of the repository; None if nobody answers."""
        try:
            rows = self.index()
        except UnavailableError:
            return None
        return {row["name"]: (row.get("state", ""), row.get("reason", "")) for row in rows}

    def json(self, path: str, *, method: str = "GET", body: Any = None) -> Any:
        try:
            return json.loads(self._answer(method, path, body)[1])
        except (OSError, HTTPException, ValueError) as error:
            raise UnavailableError(f"{self.url}{path}: no answer: {error}") from error

    def is_well(self, path: str) -> bool:
        return self._status("GET", path) == HTTPStatus.OK

    def load(self, model: str) -> bool:
        """Load a model, which may take long; return whether it is ready."""
        return self._status("POST", f"/v2/repository/models/{model}/load") == HTTPStatus.OK

    def unload(self, model: str) -> bool:
        """Unload a model, whose requests may still run; return whether the server does it."""
        return self._status("POST", f"/v2/repository/models/{model}/unload") == HTTPStatus.OK

    def _status(self, method: str, path: str) -> int | None:
        try:
            return self._answer(method, path, {} if method == "POST" else None)[0]
        except (OSError, HTTPException):
            return None

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        text = json.dumps(body) if body is not None else None
        with contextlib.closing(self._connect()) as connection:
            connection.request(method, path, text, self._headers)
            response = connection.getresponse()
            return response.status, response.read()
