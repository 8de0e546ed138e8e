"""The LoRA adapters of a model: the only list of them, and what makes a worker equal to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from lmi_backend.errors import LmiError, RequestError, WorkerStartError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.messages import error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.pool.rank_group import Worker

_log = logging.getLogger(__name__)

_CODE: Final = "model.py"


@dataclass(frozen=True)
class Adapter:
    name: str
    src: str
    """Its folder, or its id on the Hub."""
    digest: str = ""
    """Changes with its files."""
    preload: bool = True
    pin: bool = False
    has_custom_code: bool = False

    @classmethod
    def of(cls, name: str, src: str, *, preload: bool = True, pin: bool = False) -> Adapter:
        """Return the adapter of a folder; it may have code of its own."""
        return cls(name, src, preload=preload, pin=pin, has_custom_code=is_file(Path(src, _CODE)))


class AdapterSet(Mapping[str, Adapter]):
    """The LoRA adapters of a model by name, which each worker has that takes requests.

    A worker is made equal to the set at the end of its start, with `turn` held. A change of the set
    holds `turn` too, and reaches the workers that take requests first.

    Args:
        folders: of the adapters that the plan names.
    """

    def __init__(self, folders: Mapping[str, str]) -> None:
        # Never changed in place: other threads read it.
        self._by_name = {name: Adapter.of(name, folder) for name, folder in folders.items()}
        self.turn = threading.Lock()

    def __getitem__(self, name: str) -> Adapter:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def put(self, adapter: Adapter) -> None:
        """Add an adapter, or replace the one of its name; the caller holds `turn`."""
        self._by_name = {**self._by_name, adapter.name: adapter}

    def drop(self, name: str) -> None:
        """Remove an adapter; the caller holds `turn`."""
        self._by_name = {key: each for key, each in self._by_name.items() if key != name}

    def note_files(self, digest_of: Callable[[str], str]) -> None:
        """Take the files as they are now: a worker that starts loads these."""
        for each in self._by_name.values():
            digest = digest_of(each.src)
            with self.turn:
                if self._by_name.get(each.name) is each and digest != each.digest:
                    self.put(replace(each, digest=digest))

    @contextmanager
    def opening(self, worker: Worker, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Make a worker equal to this set, and keep the set while the worker opens to requests.

        Nothing else may use the worker meanwhile.

        Raises:
            LmiError: it refuses an adapter, or is gone.
        """
        # Most of them now, while others may change the set.
        self._bring(worker, is_cancelled)
        with self.turn:
            self._bring(worker, is_cancelled)
            yield

    def _bring(self, worker: Worker, is_cancelled: Callable[[], bool]) -> None:
        has, wanted = worker.identity.adapters, self._by_name
        late = [each for each in wanted.values() if has.get(each.name) != each.digest]
        # What is not pinned is loaded with its first request, which fails alone if it cannot be.
        orders = [order_of(each) for each in late]
        orders += [order_of(Adapter(name, "")) for name in has.keys() - wanted.keys()]
        for order, error in _tell(worker, orders, is_cancelled):
            if not (order.pin and isinstance(error, RequestError)):
                raise error
            _log.warning("worker %s: adapter %s is not pinned: %s", worker.name, order.name, error)
            unpinned = msgspec.structs.replace(order, preload=False, pin=False)
            for _, refusal in _tell(worker, [unpinned], is_cancelled):
                raise refusal
        adapters = {each.name: each.digest for each in wanted.values()}
        worker.identity = replace(worker.identity, adapters=adapters)


def order_of(adapter: Adapter, *, preload: bool = False) -> msg.SetAdapter:
    """Return what makes a worker know an adapter, or forget it where `src` is empty."""
    preload = preload or adapter.pin
    return msg.SetAdapter(0, adapter.name, adapter.src, preload, adapter.pin, adapter.digest)


def is_file(path: Path) -> bool:
    """Tell whether a path is a file's; it may be no path at all."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        # A name in it is longer than a name may be, or cannot be one.
        return False


def _tell(
    worker: Worker, orders: Sequence[msg.SetAdapter], is_cancelled: Callable[[], bool]
) -> list[tuple[msg.SetAdapter, LmiError]]:
    """Give a worker some orders, and wait; return those that it refuses, with its errors."""
    numbered = {
        number: msgspec.structs.replace(order, id=number)
        for number, order in enumerate(orders, start=1)
    }
    refused: list[tuple[msg.SetAdapter, LmiError]] = []
    if numbered:
        worker.send(*numbered.values())
    while numbered:
        ends = [each for each in worker.read() if isinstance(each, msg.Failure | msg.Output)]
        for message in ends:
            order = numbered.pop(message.id, None)
            if order is not None and isinstance(message, msg.Failure):
                refused.append((order, error_of(message)))
        if is_cancelled():
            raise WorkerStartError("the start was cancelled: the server is stopping")
    return refused
