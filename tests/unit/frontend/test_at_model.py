"""Streams whose model dies, and then their front end: the next model has what came before."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lmi_backend.frontend.keeping import WANTED
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.kept_chunks import KeptChunks, message_of
from lmi_backend.ipc.rejoining import Before, Rejoin, Rejoined
from lmi_backend.token_ids import pack
from tests.support import scripted_model
from tests.support.cutting_proxy import LAST_ID, Stream, follow
from tests.support.scripted_model import NAME, Order, Scripted
from tests.unit.frontend.test_keeping import STREAMS, _body, _chunks, _served
from tests.unit.frontend.test_rejoining import _forget

WORDS = 30
FIRST = 10
"""Words before the model dies."""
HANDED_ON = ["/v1/chat/completions", "/v1/completions", "/v1/messages"]


class Dying:
    """A model that dies in the middle of an answer, and resumes it."""

    def __init__(self, server: Scripted, path: str) -> None:
        self.server, self.path = server, path
        self.orders: list[Any] = []
        self.chunks = list(_chunks(path, WORDS))
        for number, chunk in enumerate(self.chunks):
            chunk.ids = pack([number])
        server.models[NAME].script = self._script
        server.models[NAME].kept = self.kept

    def _script(self, order: Order) -> Sequence[msg.ToClient | None]:
        self.orders.append(order)
        if len(self.orders) == 1:
            return [*(message_of(order.id, each) for each in self.chunks[:FIRST]), None]
        return [message_of(order.id, each) for each in self.chunks[FIRST:]]

    def kept(self, order: Rejoin) -> Sequence[msg.ToClient | None]:
        """Return what it has kept since it is back."""
        kept = KeptChunks()
        kept.add(self.chunks[FIRST:])
        return [Rejoined(order.id, kept.blocks(), self.before)]

    @property
    def before(self) -> Before | None:
        """What it was told when it resumed."""
        before: Before | None = self.orders[1].keep.before
        return before

    def run(self) -> Stream:
        """Return the whole stream, of which the front end then knows nothing."""
        got = follow(self.server.port, self.path, _body(self.path), **{WANTED: "1"})
        self.server.wait()
        assert len(self.orders) == 2
        self.forget()
        return got

    def forget(self) -> None:
        """Have the front end know nothing of the answer."""
        _forget(self.server, self.orders[0].keep.name)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    server = _served(tmp_path_factory.mktemp("server"), 600)
    model = server.models[NAME]
    info = replace(model.welcome.model, return_seconds=600.0, migration_limit=5, capacity=100)
    model.welcome = msg.Welcome(model.welcome.context, info)
    with pytest.MonkeyPatch.context() as patch, server.run():
        patch.setattr(scripted_model, "_PAUSE_SECONDS", 0.001)
        yield server


@pytest.mark.parametrize("path", HANDED_ON)
def test_the_next_front_end_has_all_of_it(scripted: Scripted, path: str) -> None:
    model = Dying(scripted, path)
    whole = model.run()
    assert len(whole.events) == WORDS + 1 if path == HANDED_ON[0] else WORDS
    for number in (1, FIRST - 1, FIRST, FIRST + 1, WORDS - 1):
        answer = scripted.ask("POST", path, _body(path), **{LAST_ID: whole.ids[number - 1]})
        assert (answer.status, answer.has_end) == (200, True), answer
        lines = (
            b"id: %b\n%b\n\n" % (name.encode(), event)
            for name, event in zip(whole.ids, whole.events, strict=True)
        )
        assert answer.data == b"".join(list(lines)[number:])
        model.forget()


@pytest.mark.parametrize("path", HANDED_ON[:1])
def test_it_resumes_once_more(scripted: Scripted, path: str) -> None:
    """The tokens of the first model count too, and all that came is handed on again."""
    model = Dying(scripted, path)
    whole = model.run()
    first = model.before
    assert first is not None
    scripted.models[NAME].kept = lambda order: [*model.kept(order)[:1], None]
    model.chunks, rest = model.chunks[:WORDS], model.chunks[FIRST + 5 :]
    kept = KeptChunks()
    kept.add(model.chunks[FIRST : FIRST + 5])
    scripted.models[NAME].kept = lambda order: [Rejoined(order.id, kept.blocks(), first), None]
    model.chunks[FIRST:] = rest
    answer = scripted.ask("POST", path, _body(path), **{LAST_ID: whole.ids[0]})
    scripted.wait()
    assert (answer.status, answer.has_end) == (200, True)
    assert answer.data.count(b"id: ") == len(whole.events) - 1
    order = model.orders[2]
    where, before = order.request.continuation, order.keep.before
    assert where.ids == b"".join(pack([number]) for number in range(FIRST + 5))
    assert (before.ids, before.head) == (where.ids, first.head)
    assert before.num_lines == where.num_lines > first.num_lines
    assert before.num_tokens == FIRST + 5
    model.forget()


@pytest.mark.parametrize("path", [each for each in STREAMS if each not in HANDED_ON])
def test_of_other_paths_it_is_not_known(scripted: Scripted, path: str) -> None:
    """Those of LMI's and TGI's streams are made here; those of a response never resume."""
    model = Dying(scripted, path)
    follow(scripted.port, path, _body(path), **{WANTED: "1"})
    scripted.wait()
    if path != "/v1/responses":
        assert model.orders[1].keep.before is None
    model.forget()


@pytest.mark.parametrize("change", [{"num_lines": 19}, {"head": b"data: b"}, {"events": []}])
def test_what_does_not_fit_is_no_answer(scripted: Scripted, change: dict[str, Any]) -> None:
    model = Dying(scripted, HANDED_ON[0])
    whole = model.run()
    assert model.before is not None
    wrong = msgspec.structs.replace(model.before, **change)
    scripted.models[NAME].kept = lambda order: [Rejoined(order.id, [], wrong)]
    answer = scripted.ask("POST", model.path, _body(), **{LAST_ID: whole.ids[3]})
    assert answer.status == 500
    assert b"cannot be read" in answer.data
