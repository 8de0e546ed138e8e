"""An endpoint that is real, of workers that are not."""

import socket
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from lmi_backend.endpoint.server import Endpoint
from lmi_backend.endpoint.state import StateView
from lmi_backend.engine_config import Context, ModelInfo
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.ipc.frames import FrameDecoder, encode, receive
from lmi_backend.pool.adapters import AdapterSet
from lmi_backend.serving.lora import LoraManager
from lmi_backend.serving.service import Service, renew_worker
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.doubles.service_bench import limits_of
from tests.support.run.waiting import HANG_SECONDS


class EndpointClient:
    """A client of an endpoint, which has been welcomed."""

    def __init__(self, endpoint: Endpoint, *, keeps_ids: bool = False) -> None:
        self.endpoint = endpoint
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(HANG_SECONDS)
        self._socket.connect(str(endpoint.address))
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.ToClient, limit=1 << 24)
        self._messages: list[Any] = []
        self.send(msg.Hello(msg.PROTOCOL, 1, keeps_ids=keeps_ids))
        assert isinstance(self.hear(), msg.Welcome)

    def send(self, message: Any) -> None:
        self._socket.sendall(encode([message]))

    def hear(self) -> Any:
        while not self._messages:
            self._messages += receive(self._socket, self._decoder)
        return self._messages.pop(0)

    def close(self) -> None:
        self._socket.close()


def die(endpoint: Endpoint) -> None:
    """End an endpoint as a process that is killed: its sockets close, and its address stays."""
    stays = endpoint.address.with_suffix(".stays")
    with socket.socket(socket.AF_UNIX) as another:
        another.bind(str(stays))
    # What is not its own is not removed.
    stays.replace(endpoint.address)
    endpoint.close()


def open_endpoint(
    name: str,
    workers: IdleWorkers,
    context: Context | None = None,
    adapters: Mapping[str, str] = MappingProxyType({}),
    state: Mapping[str, Any] = MappingProxyType({}),
    **info: Any,
) -> Endpoint:
    """Return the endpoint of a model, which listens.

    Args:
        context: how its clients' bodies are read.
        adapters: those that it has, by name.
        state: what its operators see besides (`StateView`).
        info: what else is said of the model (`ModelInfo`), to who connects first, too.
    """
    service = Service(workers, limits_of(8, 8))
    lora = LoraManager(AdapterSet(adapters), service, (), is_enabled=True)
    model = ModelInfo(name=name, engine="vllm", version="1", max_model_len=100, **info)
    shown: dict[str, Any] = {"plan": {}, "redact": str, "log": lambda _: [], **state}
    view = StateView(model=model, service=service, lora_manager=lora, started_at=1.0, **shown)
    renew = partial(renew_worker, service, service.workers, 1)  # type: ignore[arg-type]
    one = Endpoint(view, context or Context(), renew)
    one.open()
    return one


def short_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a server's folder: the address of a socket has room for 107 bytes, tmp_path may not."""
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setenv(RUN_DIR_VARIABLE, name)
        yield Path(name)
