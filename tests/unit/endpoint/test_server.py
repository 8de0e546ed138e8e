"""One message of a client that cannot be handled is that message's failure."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.endpoint.server import Endpoint
from lmi_backend.generation import Delta, GenerateRequest, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import encode
from tests.support.doubles.endpoints import EndpointClient, open_endpoint, short_folder
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.run.waiting import HANG_SECONDS, wait_for

folder = pytest.fixture(short_folder)
STREAM = 7
"""A client's number of the request that others must not harm."""


class Client(EndpointClient):
    """One with a stream that is open."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.send(msg.Submit(STREAM, (GenerateRequest("a"),)))
        wait_for(lambda: endpoint.service.snapshot().open == 1)

    def goes_on(self) -> bool:
        """Tell whether the open stream does."""
        number, *_ = self.endpoint.service.states
        self.endpoint.service.on_messages([msg.Output(number, Delta("more", 1))])
        return bool(self.hear() == msg.Output(STREAM, Delta("more", 1)))


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    endpoint = open_endpoint("m", IdleWorkers())
    client = Client(endpoint)
    yield client
    client.close()
    endpoint.close()


def _bug(*_: Any, **__: Any) -> Any:
    raise TypeError("a bug")


@pytest.mark.parametrize(
    ("place", "message", "answer"),
    [
        ("service.submit", msg.Submit(8, (GenerateRequest("b"),)), msg.Failure),
        ("service.submit", msg.SubmitHttp(8, HttpRequest("/v1/models", b"")), msg.Failure),
        ("lora_manager.handle", msg.Manage(8, {}), msg.Failure),
        ("lora_manager.take", msg.Manage(8, {}), msg.Failure),
        ("service.health", msg.AskHealth(), msg.Health),
        ("_state.values", msg.AskState(), msg.State),
        ("_state.brief", msg.AskState(is_brief=True), msg.State),
        ("service.drain", msg.Drain(1.0), msg.Done),
        ("_renew", msg.RenewWorker(0, 1.0), msg.Done),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_handled_is_answered_and_the_next_is_read(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
    message: Any,
    answer: type,
) -> None:
    owner, _, name = place.rpartition(".")
    # A frozen view takes no attribute, its class does.
    place_of: Any = type(getattr(client.endpoint, owner)) if owner else client.endpoint
    monkeypatch.setattr(place_of, name, _bug)
    client.send(message)
    reply = client.hear()
    assert isinstance(reply, answer)
    if isinstance(reply, msg.Failure):
        assert (reply.id, reply.kind) == (8, "engine")
        assert "the server's log has its trace" in reply.message
    assert "TypeError: a bug" in caplog.text
    assert client.goes_on()


@pytest.mark.parametrize("src", ["x\0y", "/\0"])
def test_an_adapters_folder_that_is_no_path_is_refused_by_name(client: Client, src: str) -> None:
    register = {"requestType": "REGISTER_ADAPTER", "name": "a", "src": src}
    client.endpoint.lora_manager.roots = (Path("/"),)
    client.send(msg.Manage(8, register))
    message = client.hear()
    assert (message.id, message.kind, message.status) == (8, "http", 400)
    assert "src" in message.message
    assert client.goes_on()


def test_what_cannot_be_packed_ends_the_request_that_it_is_of(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.send(msg.Submit(8, (GenerateRequest("b"),)))
    service = client.endpoint.service
    wait_for(lambda: service.snapshot().open == 2)
    first, second = service.states
    outputs: list[msg.FromWorker] = [
        msg.Output(first, Delta("good", 1)),
        msg.Output(second, Delta("\ud800", 1)),
    ]
    service.on_messages(outputs)
    messages = [client.hear(), client.hear()]
    assert messages[0] == msg.Output(STREAM, Delta("good", 1))
    assert (type(messages[1]), messages[1].id) == (msg.Failure, 8)
    assert "cannot be packed" in caplog.text
    assert client.goes_on()


def test_what_an_abort_names_ends_at_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    service = client.endpoint.service
    # Whoever looks at all requests now and then is not needed.
    service.cancellation.stop()
    aborted: list[int] = []
    monkeypatch.setattr(service.workers, "abort", lambda _, numbers: aborted.extend(numbers))
    service.senders.start()
    for number in range(100, 104):
        client.send(msg.Submit(number, (GenerateRequest("b"),)))
    wait_for(lambda: service.snapshot().open == 5)
    numbers = list(service.states)
    client.send(msg.Abort([100, 101, 103, 999]))
    wait_for(lambda: service.snapshot().open == 2)
    assert aborted == [numbers[1], numbers[2], numbers[4]]
    # Who leaves ends all that is left of its own.
    client.close()
    wait_for(lambda: service.snapshot().open == 0)
    assert service.snapshot().ended == {"cancelled": 5}
    service.senders.stop()


def test_connections_are_taken_again_when_there_are_descriptors(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class NoDescriptors:
        """A listening socket when the process has no descriptor left, and then has."""

        def __init__(self, real: socket.socket) -> None:
            self.real, self.failures = real, 1

        def accept(self) -> Any:
            if self.failures:
                self.failures = 0
                raise OSError(24, "Too many open files")
            return self.real.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

    monkeypatch.setattr("lmi_backend.threads.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(client.endpoint, "listener", NoDescriptors(client.endpoint.listener))
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as another:
            another.settimeout(HANG_SECONDS)
            another.connect(str(client.endpoint.address))
            another.sendall(encode([msg.AskHealth()]))
            assert another.recv(1000)
    assert "Too many open files" in caplog.text


def test_a_file_system_that_hangs_holds_up_nobody_else(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there = threading.Event()
    lora_manager = client.endpoint.lora_manager
    monkeypatch.setattr(
        lora_manager, "_folder", lambda _: is_there.wait(HANG_SECONDS) and Path("/adapter")
    )
    number = next(iter(client.endpoint.service.states))
    for request_id in range(100, 202):
        name = f"a{request_id}"
        register = {"requestType": "REGISTER_ADAPTER", "name": name, "src": name}
        client.send(msg.Manage(request_id, register))
    refused = client.hear()
    assert (refused.kind, refused.id in (200, 201)) == ("unavailable", True)
    client.send(msg.AskHealth())
    while isinstance(client.hear(), msg.Failure):
        pass
    assert client.endpoint.service.states[number].error is None
    # Nor those whose answers tell of an adapter.
    assert lora_manager.adapters.turn.acquire(timeout=HANG_SECONDS)
    lora_manager.adapters.turn.release()
    assert client.goes_on()
    is_there.set()


@pytest.mark.parametrize("is_body", [False, True])
def test_a_failed_request_is_logged_by_the_id_that_its_front_end_logs(
    client: Client, caplog: pytest.LogCaptureFixture, *, is_body: bool
) -> None:
    for number in range(10, 14):
        works: Any = HttpRequest("/v1/completions", b"{}"), (GenerateRequest("b"),)
        kind = msg.SubmitHttp if is_body else msg.Submit
        client.send(kind(number, works[not is_body], name=f"client-{number}"))
    wait_for(lambda: client.endpoint.service.snapshot().open == 5)
    service = client.endpoint.service
    states = {state.sink.request_id: each for each, state in service.states.items()}
    service.on_messages([msg.Failure(states["client-12"], "engine", "out of luck")])
    sender = service.senders
    sender.start()
    try:
        assert client.hear().id == 12
        wait_for(lambda: service.snapshot().open == 4)
    finally:
        sender.stop()
    (line,) = [each for each in caplog.messages if "outcome=" in each]
    assert "request_id=client-12 outcome=internal" in line
    # Triton's clients stop their own requests by such a name, not those of others.
    service.cancel("client-13")
    assert service.states[states["client-13"]].error is None
