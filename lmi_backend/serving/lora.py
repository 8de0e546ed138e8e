"""LoRA adapters of a running model: load, unload, list.

The names are those of LMI's management API, whose arguments stand in a body here; the answers are
its bodies.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.spec import INPLACE
from lmi_backend.errors import LMI_ERROR, HttpError, LmiError, UnavailableError
from lmi_backend.files import CONFIG
from lmi_backend.generation import HttpChunk
from lmi_backend.names import PATH_BYTES, check_name
from lmi_backend.pool.adapters import Adapter, AdapterSet, is_file, order_of
from lmi_backend.printable import listed, printable
from lmi_backend.serving.identity import adapter_digest
from lmi_backend.serving.request_state import refuse
from lmi_backend.threads import QueueThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lmi_backend.serving.request_state import Sink
    from lmi_backend.serving.service import Service

_log = logging.getLogger(__name__)

_REGISTER, _UPDATE = "REGISTER_ADAPTER", "UPDATE_ADAPTER"
_REMOVE, _SHOW, _LIST = "UNREGISTER_ADAPTER", "DESCRIBE_ADAPTER", "LIST_ADAPTERS"
_REQUESTS: Final = (_LIST, _SHOW, _REGISTER, _UPDATE, _REMOVE)
_NO_CODE: Final = (
    "its model.py would not be run: the model has no code of its own; accepted: an adapter without "
    "model.py, one in the model's folder when it is loaded, or any if the model has a model.py"
)
_NO_PATH: Final = re.compile(r"[\x00\ud800-\udfff]")
"""What is in no path that the system could open, and a frame carry."""
_MOST: Final = 10_000
"""Adapters of a model: each is kept in the stub, in every worker and in every alias model."""
_MOST_WAITING: Final = 100
"""Management requests."""


class LoraManager:
    """Changes the adapters of one model, in all its workers or in none.

    A thread of its own makes one change after the other: a file system may take its time.

    Args:
        roots: folders in which an adapter may lie; empty where adapters are not served.
        is_enabled: whether `option.enable_lora` is set.
        runs_code: whether the model runs users' code at all; a client must not begin it.
    """

    def __init__(
        self,
        adapters: AdapterSet,
        service: Service,
        roots: tuple[str, ...],
        *,
        is_enabled: bool,
        runs_code: bool = False,
    ) -> None:
        self.adapters, self.service = adapters, service
        self.roots = tuple(Path(root).resolve() for root in roots)
        self._is_enabled, self._runs_code = is_enabled, runs_code
        self.model_names: Collection[str] = ()
        """Those of the model itself, by which its clients would get an adapter."""
        self.on_set: Callable[[str, str], None] = lambda _name, _digest: None
        """Called with an adapter's name and digest before requests may use it; empty: it is gone.
        """
        self.on_unequal: Callable[[int], None] = lambda _index: None
        """Called with the number of a worker that can no longer be made equal to the others."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after the adapters have changed."""
        self.threads = QueueThreads[tuple["Mapping[str, object]", "Sink"]](
            lambda request: self._answer(*request), "lmi-manage"
        )
        """What has to be started, and stopped."""

    def take(self, body: Mapping[str, object], sink: Sink) -> None:
        """Take a request; its answer, or its error, goes to the sink. Never blocks.

        Raises:
            UnavailableError: too many wait; the sink is not used.
        """
        if self.threads.num_waiting() >= _MOST_WAITING:
            raise UnavailableError(f"{_MOST_WAITING} management requests wait")
        self.threads.put((body, sink))

    def _answer(self, body: Mapping[str, object], sink: Sink) -> None:
        try:
            self.handle(body, sink)
        except Exception as error:  # noqa: BLE001  it is this request's failure
            refuse(error, sink, self.service.refused, "a management request cannot be answered")

    def handle(self, body: Mapping[str, object], sink: Sink) -> None:
        """Answer a management request through its sink.

        Raises:
            LmiError: it is wrong; the sink is not used.
        """
        kind = body.get("requestType")
        if kind not in _REQUESTS:
            shown = ", ".join(_REQUESTS)
            raise HttpError(
                LMI_ERROR, f"requestType {printable(repr(kind))} is unknown; accepted: {shown}"
            )
        if not self._is_enabled:
            raise HttpError(400, "LoRA is not enabled: set option.enable_lora=true")
        if kind == _LIST:
            _reply(sink, self._page(body))
            return
        name = body.get("name")
        if not isinstance(name, str) or not name:
            raise HttpError(400, "name is missing; accepted: the name of an adapter")
        check_name("name", name)
        if kind == _SHOW:
            _reply(sink, _info(self._get(name)))
            return
        self._change(kind, name, body, sink)

    def _page(self, body: Mapping[str, Any]) -> dict[str, object]:
        try:
            limit = int(body.get("limit", 100))
            start = int(body.get("next_page_token", 0))
        except (OverflowError, TypeError, ValueError):
            raise HttpError(400, "limit and next_page_token are whole numbers") from None
        if limit < 1 or start < 0:
            raise HttpError(400, "limit is at least 1 and next_page_token at least 0")
        infos = [_info(each) for each in self.adapters.values()]
        page: dict[str, object] = {"adapters": infos[start : start + limit]}
        if start + limit < len(infos):
            page["nextPageToken"] = str(start + limit)
        return page

    def _get(self, name: str) -> Adapter:
        if name not in self.adapters:
            known = listed(self.adapters)
            raise HttpError(404, f"adapter {printable(name)} is not registered; known: {known}")
        return self.adapters[name]

    def _change(self, kind: str, name: str, body: Mapping[str, object], sink: Sink) -> None:
        # Not in turn, for which workers wait that start: a file system may take its time.
        after = self._wanted(kind, name, body)
        with self.adapters.turn:
            error = self._change_all(self.adapters.get(name), after)
            if error is None and after.src:
                self.adapters.put(after)
            elif error is None:
                self.adapters.drop(name)
            if error is None:
                self.on_set(name, after.digest)
        if error is not None:
            is_wrong = error.code == "INVALID_ARG"
            sink.fail(HttpError(LMI_ERROR, str(error)) if is_wrong else error)
            return
        self.on_change()
        verbs = {_REGISTER: "registered", _UPDATE: "updated", _REMOVE: "unregistered"}
        status = f"Adapter {name} {verbs[kind]}"
        _log.info("%s", printable(status))
        _reply(sink, {"status": status})

    def _change_all(self, before: Adapter | None, after: Adapter) -> LmiError | None:
        """Change an adapter in all workers; if one refuses, undo it in the others."""
        took, error = self.service.adapt(order_of(after, preload=after.preload))
        if error is not None and took:
            undo = order_of(before or Adapter(after.name, ""))
            undone, problem = self.service.adapt(undo, took)
            for index in set(took) - set(undone):
                _log.error("worker %d: adapter %s: %s", index, printable(after.name), problem)
                self.on_unequal(index)
        return error

    def _wanted(self, kind: str, name: str, body: Mapping[str, object]) -> Adapter:
        is_new = kind == _REGISTER and name not in self.adapters
        if kind == _REMOVE:
            return Adapter(self._get(name).name, "")
        if kind == _REGISTER and not is_new and not _flag(body, INPLACE, default=False):
            raise HttpError(409, f"adapter {printable(name)} is registered already")
        if is_new and len(self.adapters) >= _MOST:
            raise HttpError(LMI_ERROR, f"{_MOST} adapters are registered: unregister one first")
        wanted = self._updated(name, body) if kind == _UPDATE else self._added(name, body)
        return replace(wanted, digest=adapter_digest(wanted.src))

    def _updated(self, name: str, body: Mapping[str, object]) -> Adapter:
        before = self._get(name)
        pin = _flag(body, "pin", default=before.pin)
        if str(body.get("src", before.src)) != before.src:
            raise HttpError(
                LMI_ERROR, f"adapter {printable(name)}: src cannot change; unregister it first"
            )
        if before.pin and not pin:
            raise HttpError(LMI_ERROR, f"adapter {printable(name)}: a pinned adapter stays pinned")
        return replace(before, preload=True, pin=pin)

    def _added(self, name: str, body: Mapping[str, object]) -> Adapter:
        if "src" not in body:
            raise HttpError(400, "src is missing; accepted: the adapter's folder")
        if name in self.model_names:
            raise HttpError(400, f"name {name}: is the model's own; accepted: another")
        before = self.adapters.get(name)
        added = Adapter.of(
            name,
            str(self._folder(body["src"])),
            preload=_flag(body, "preload", default=True),
            pin=_flag(body, "pin", default=before is not None and before.pin),
        )
        if added.has_custom_code and not self._runs_code:
            raise HttpError(LMI_ERROR, f"adapter {printable(name)}: {_NO_CODE}")
        if added.pin and not added.preload:
            raise HttpError(LMI_ERROR, "pin=true needs preload=true")
        return added

    def _folder(self, src: object) -> Path:
        """Return where an adapter lies; links are followed first, so none leads out of a root."""
        shown = printable(str(src))
        if not isinstance(src, str) or _NO_PATH.search(src):
            raise HttpError(400, f"src {shown}: accepted: text without NUL and lone surrogates")
        # To look for links in a path of a megabyte takes 17 s.
        if len(src) > PATH_BYTES:
            raise HttpError(400, f"src {shown}: accepted: at most {PATH_BYTES} bytes")
        path = Path(src.removeprefix("file://"))
        if "://" in str(src) and not src.startswith("file://"):
            raise HttpError(400, f"src {shown}: accepted: a folder of this machine")
        try:
            folder = (self.roots[0] / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise HttpError(
                400, f"src {shown}: accepted: a folder; {printable(str(error))}"
            ) from error
        if not any(folder.is_relative_to(root) for root in self.roots):
            roots = ", ".join(map(str, self.roots))
            raise HttpError(
                400, f"src {shown}: accepted: a folder in {roots} (option.adapter_roots)"
            )
        if not is_file(folder / CONFIG):
            raise HttpError(LMI_ERROR, f"src {shown}: has no {CONFIG}")
        return folder


def _info(adapter: Adapter) -> dict[str, object]:
    return {
        "name": adapter.name,
        "src": adapter.src,
        "preload": adapter.preload,
        "pin": adapter.pin,
        "has_custom_code": adapter.has_custom_code,
    }


def _reply(sink: Sink, body: Mapping[str, object]) -> None:
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    sink.send([HttpChunk(data, is_last=True, headers=headers)], is_last=True)


def _flag(body: Mapping[str, object], name: str, *, default: bool) -> bool:
    value = body.get(name, default)
    # LMI's clients write them into a query string.
    value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise HttpError(400, f"{name} {value!r}: accepted: true or false")
    return value
