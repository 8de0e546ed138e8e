"""LoRA adapters of a running model: load, unload, list.

The names are those of LMI's management API, whose arguments stand in a body here; the answers and
the errors are its bodies.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from lmi_backend.errors import LMI_ERROR, HttpError, LmiError
from lmi_backend.generation import Chunk, HttpChunk
from lmi_backend.names import PATH_BYTES, check_name
from lmi_backend.printable import listed, printable
from lmi_backend.serving.identity import adapter_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.serving.request_state import Sink
    from lmi_backend.serving.service import Service

_log = logging.getLogger(__name__)

_REGISTER, _UPDATE = "REGISTER_ADAPTER", "UPDATE_ADAPTER"
_REMOVE, _SHOW, _LIST = "UNREGISTER_ADAPTER", "DESCRIBE_ADAPTER", "LIST_ADAPTERS"
_REQUESTS: Final = (_LIST, _SHOW, _REGISTER, _UPDATE, _REMOVE)
_CONFIG: Final = "adapter_config.json"
_CODE: Final = "model.py"
_NO_CODE: Final = (
    f"its {_CODE} would not be run: the model has no code of its own; accepted: an adapter without "
    f"{_CODE}, one in the model's folder when it is loaded, or any if the model has a {_CODE}"
)
_NO_PATH: Final = re.compile(r"[\x00\ud800-\udfff]")
_MOST: Final = 10_000
"""Adapters of a model: each is kept in the stub, in every worker and in every alias model."""


class AdapterInfo(TypedDict):
    """What LMI's API says of an adapter."""

    name: str
    src: str
    preload: bool
    pin: bool
    has_custom_code: bool


class LoraManager:
    """The adapters of one model.

    Args:
        folders: those known at the start, name to folder.
        roots: folders in which an adapter may lie; empty where adapters are not served.
        is_enabled: whether `option.enable_lora` is set.
        runs_code: whether the model runs users' code at all; a client must not begin it.
    """

    def __init__(
        self,
        folders: Mapping[str, str],
        roots: tuple[str, ...],
        *,
        is_enabled: bool,
        runs_code: bool = False,
    ) -> None:
        self.folders: dict[str, str] = dict(folders)
        """Adapter name to folder, now; a new worker starts with them."""
        self.digests = {name: adapter_digest(folder) for name, folder in folders.items()}
        """Adapter name to what changes with its files."""
        self._infos: dict[str, AdapterInfo] = {
            name: _info(name, Path(folder)) for name, folder in folders.items()
        }
        self._roots = tuple(Path(root).resolve() for root in roots)
        self._is_enabled, self._runs_code = is_enabled, runs_code
        self._changing: set[str] = set()
        self.on_set: Callable[[str, str], None] = lambda _name, _digest: None
        """Called with an adapter's name and digest before requests may use it; empty: it is gone.
        """
        self.on_change: Callable[[], None] = lambda: None
        """Called after the adapters have changed."""
        self._lock = threading.Lock()

    def handle(self, body: Mapping[str, object], service: Service, sink: Sink) -> None:
        """Answer a management request through its sink.

        Raises:
            LmiError: it is wrong; the sink is not used.
        """
        kind = body.get("requestType")
        if kind not in _REQUESTS:
            shown = ", ".join(_REQUESTS)
            raise _error(
                LMI_ERROR, f"requestType {printable(repr(kind))} is unknown; accepted: {shown}"
            )
        if not self._is_enabled:
            raise _error(400, "LoRA is not enabled: set option.enable_lora=true")
        if kind == _LIST:
            _answer(sink, self._page(body))
            return
        name = body.get("name")
        if not isinstance(name, str) or not name:
            raise _error(400, "name is missing; accepted: the name of an adapter")
        check_name("name", name)
        if kind == _SHOW:
            _answer(sink, self._info(name))
            return
        self._change(kind, name, body, service, sink)

    def _page(self, body: Mapping[str, Any]) -> dict[str, object]:
        try:
            limit = int(body.get("limit", 100))
            start = int(body.get("next_page_token", 0))
        except (OverflowError, TypeError, ValueError):
            raise _error(400, "limit and next_page_token are whole numbers") from None
        if limit < 1 or start < 0:
            raise _error(400, "limit is at least 1 and next_page_token at least 0")
        infos = list(self._infos.values())
        page: dict[str, object] = {"adapters": infos[start : start + limit]}
        if start + limit < len(infos):
            page["nextPageToken"] = str(start + limit)
        return page

    def _info(self, name: str) -> AdapterInfo:
        if name not in self._infos:
            known = listed(self._infos)
            raise _error(404, f"adapter {printable(name)} is not registered; known: {known}")
        return self._infos[name]

    def _change(
        self, kind: str, name: str, body: Mapping[str, object], service: Service, sink: Sink
    ) -> None:
        # Without the lock, for which senders of answers wait: a file system may take its time.
        added = self._added(name, body) if kind == _REGISTER and name not in self._infos else None
        with self._lock:
            if name in self._changing:
                raise _error(409, f"adapter {name} is being changed")
            info = added or self._changed(kind, name, body)
            self._changing.add(name)
        digest = adapter_digest(info["src"])

        def finish(*, is_done: bool) -> None:
            with self._lock:
                self._changing.discard(name)
                if is_done:
                    self._set(name, None if kind == _REMOVE else info, digest)
            if is_done:
                self.on_change()

        verbs = {_REGISTER: "registered", _UPDATE: "updated", _REMOVE: "unregistered"}
        answer = {"status": f"Adapter {name} {verbs[kind]}"}
        folder = "" if kind == _REMOVE else info["src"]
        waiting = _ChangeSink(sink, answer, finish)
        try:
            service.adapt(name, folder, waiting, preload=info["preload"], pin=info["pin"])
        except BaseException:
            finish(is_done=False)
            raise

    def _changed(self, kind: str, name: str, body: Mapping[str, object]) -> AdapterInfo:
        """Return what the adapter will be; the change must be possible."""
        if kind == _REMOVE:
            return self._info(name)
        if kind == _UPDATE:
            before = self._info(name)
            info: AdapterInfo = {
                **before,
                "preload": True,
                "pin": _flag(body, "pin", default=before["pin"]),
            }
            if str(body.get("src", before["src"])) != before["src"]:
                raise _error(LMI_ERROR, f"adapter {name}: src cannot change; unregister it first")
            if before["pin"] and not info["pin"]:
                raise _error(LMI_ERROR, f"adapter {name}: a pinned adapter stays pinned")
            return info
        raise _error(409, f"adapter {name} is registered already")

    def _added(self, name: str, body: Mapping[str, object]) -> AdapterInfo:
        """Return what a new adapter will be."""
        if len(self._infos) >= _MOST:
            raise _error(LMI_ERROR, f"{_MOST} adapters are registered: unregister one first")
        if "src" not in body:
            raise _error(400, "src is missing; accepted: the adapter's folder")
        added = _info(
            name,
            self._folder(body["src"]),
            preload=_flag(body, "preload", default=True),
            pin=_flag(body, "pin", default=False),
        )
        if added["has_custom_code"] and not self._runs_code:
            raise _error(LMI_ERROR, f"adapter {printable(name)}: {_NO_CODE}")
        if added["pin"] and not added["preload"]:
            raise _error(LMI_ERROR, "pin=true needs preload=true")
        return added

    def _folder(self, src: object) -> Path:
        """Return where an adapter lies; links are followed first, so none leads out of a root."""
        shown = printable(str(src))
        if not isinstance(src, str) or not _may_be_path(src):
            raise _error(400, f"src {shown}: accepted: text without NUL and lone surrogates")
        # To look for links in a path of a megabyte takes 17 s.
        if len(src) > PATH_BYTES:
            raise _error(400, f"src {shown}: accepted: at most {PATH_BYTES} bytes")
        path = Path(src.removeprefix("file://"))
        if "://" in str(src) and not src.startswith("file://"):
            raise _error(400, f"src {shown}: accepted: a folder of this machine")
        try:
            folder = (self._roots[0] / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise _error(
                400, f"src {shown}: accepted: a folder; {printable(str(error))}"
            ) from error
        if not any(folder.is_relative_to(root) for root in self._roots):
            roots = ", ".join(map(str, self._roots))
            raise _error(400, f"src {shown}: accepted: a folder in {roots} (option.adapter_roots)")
        if not _is_file(folder / _CONFIG):
            raise _error(LMI_ERROR, f"src {shown}: has no {_CONFIG}")
        return folder

    def _set(self, name: str, info: AdapterInfo | None, digest: str) -> None:
        self.on_set(name, "" if info is None else digest)
        if info is None:
            self._infos.pop(name, None)
            self.folders.pop(name, None)
            self.digests.pop(name, None)
        else:
            self._infos[name] = info
            self.folders[name] = info["src"]
            self.digests[name] = digest


class _ChangeSink:
    """Waits for the engine, then notes the change and answers."""

    def __init__(self, sink: Sink, answer: dict[str, str], finish: Callable[..., None]) -> None:
        self._sink, self._answer, self._finish = sink, answer, finish
        self.request_id = sink.request_id

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        self._finish(is_done=True)
        _log.info("%s", printable(self._answer["status"]))
        _answer(self._sink, self._answer)

    def fail(self, error: LmiError) -> None:
        self._finish(is_done=False)
        self._sink.fail(_error(LMI_ERROR, str(error)) if error.code == "INVALID_ARG" else error)

    def is_cancelled(self) -> bool:
        """Return False: a change that has begun is finished."""
        return False


def _info(name: str, folder: Path, *, preload: bool = True, pin: bool = False) -> AdapterInfo:
    return {
        "name": name,
        "src": str(folder),
        "preload": preload,
        "pin": pin,
        "has_custom_code": _is_file(folder / _CODE),
    }


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # A name in it is longer than a name may be, or cannot be one.
        return False


def _may_be_path(text: str) -> bool:
    """Tell whether the system could open a path, and a frame carry it."""
    return not _NO_PATH.search(text)


def _answer(sink: Sink, body: Mapping[str, object]) -> None:
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    sink.send([HttpChunk(data, is_last=True, headers=headers)], is_last=True)


def _flag(body: Mapping[str, object], name: str, *, default: bool) -> bool:
    value = body.get(name, default)
    # LMI's clients write them into a query string.
    value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise _error(400, f"{name} {value!r}: accepted: true or false")
    return value


def _error(status: int, message: str) -> HttpError:
    types = {400: "BadRequestException", 404: "AdapterNotFoundException", 409: "ConflictException"}
    body = {"code": status, "type": types.get(status, "ModelException"), "message": message}
    return HttpError(status, json.dumps(body))
