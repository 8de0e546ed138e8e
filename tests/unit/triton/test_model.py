"""One request of a batch that Triton hands over is taken alone, whatever is wrong with it."""

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.doubles.triton_double import beside_the_double


class Sender:
    """Keeps what is sent of one request."""

    def __init__(self, *, works: bool = True) -> None:
        self.works = works
        self.sent: list[tuple[Any, int]] = []

    def send(self, response: Any, flags: int) -> None:
        if not self.works:
            raise RuntimeError("the request is gone")
        self.sent.append((response, flags))


class Request:
    """One of which all that may fail may be told to."""

    def __init__(self, sender: Sender | None, request_id: str = "a") -> None:
        self._sender, self._id = sender, request_id

    def get_response_sender(self) -> Sender:
        if self._sender is None:
            raise RuntimeError("no sender")
        return self._sender

    def request_id(self) -> str:
        return self._id

    def inputs(self) -> list[Any]:
        raise TypeError("a bug")


class Asking(Request):
    """One with inputs and Triton's parameters."""

    def __init__(self, sender: Sender, parameters: str) -> None:
        super().__init__(sender)
        self._parameters = parameters

    def inputs(self) -> list[Any]:
        return [{"text_input": ["a"]}]

    def parameters(self) -> str:
        return self._parameters


@pytest.fixture
def module() -> Iterator[ModuleType]:
    with beside_the_double("model") as (found,):
        yield found


@pytest.fixture
def model(module: ModuleType) -> Any:
    made = module.TritonPythonModel()
    made.codec = SimpleNamespace(read_inputs=lambda request: request.inputs())
    made.loaded = SimpleNamespace(service=SimpleNamespace(refused=lambda _: None))
    return made


@pytest.mark.parametrize(("text", "expected"), [("", True), ("true", True), ("False", False)])
def test_the_switch_of_tritons_vllm_backend_is_honoured(
    module: ModuleType, text: str, expected: bool
) -> None:
    assert module.reports_vllm_metrics({"REPORT_CUSTOM_METRICS": text}) is expected
    assert module.reports_vllm_metrics({}) is True


def test_each_request_of_a_batch_is_answered_for_itself(
    model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first, gone, last = Sender(), Sender(works=False), Sender()
    requests = [Request(first), Request(None), Request(gone), Request(last, "b\0")]
    model.execute(requests)
    for sender in (first, last):
        ((response, flags),) = sender.sent
        assert response.error is not None
        assert flags == 1
    for words in ("TypeError: a bug", "no sender", "the request is gone"):
        assert words in caplog.text


@pytest.mark.parametrize("parameters", ["[]", "{", f'{{"a":[{"[]," * 400_000}0]}}'])
def test_parameters_that_cannot_be_read_are_its_clients_fault(model: Any, parameters: str) -> None:
    sender = Sender()
    model.execute([Asking(sender, parameters)])
    ((response, _),) = sender.sent
    assert response.error.args[0].startswith("parameters ")
    assert response.error.args[1] == 1


def test_requests_that_end_at_the_unload_are_published(model: Any) -> None:
    """Triton knows nothing of those that came through the endpoint: they end as it closes."""
    order: list[str] = []
    model.loaded = SimpleNamespace(close=lambda: order.append("ended"))
    model.publisher = SimpleNamespace(stop=lambda: order.append("published"))
    model.finalize()
    assert order == ["ended", "published"]


@pytest.mark.parametrize(("number", "session"), [(0, ""), ("", ""), (42, "42"), ("a", "a")])
def test_the_sequence_of_a_request_is_its_session(
    module: ModuleType, number: object, session: str
) -> None:
    assert module.session_of_sequence(SimpleNamespace(correlation_id=lambda: number)) == session
    # A stub of 2023 does not tell it.
    assert module.session_of_sequence(SimpleNamespace()) == ""
