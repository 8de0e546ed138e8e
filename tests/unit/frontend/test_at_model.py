"""Streams whose model dies, and then their front end: the next model has what came before."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lmi_backend.clients.form import EVENTS, Form, Restorable
from lmi_backend.clients.lmi.handler_form import LegacyChatForm, form_of
from lmi_backend.clients.lmi.reading import read_lmi
from lmi_backend.clients.tgi.reading import read_stream
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.errors import EngineError
from lmi_backend.frontend.at_model import RestoredForm
from lmi_backend.frontend.keeping import WANTED
from lmi_backend.generation import Chunk, Delta, HttpChunk, Token
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
HANDED_ON = [path for path in STREAMS if path != "/v1/responses"]
PARAMETERS: dict[str, Any] = {"details": True, "seed": 5, "return_full_text": True}
TOP = PARAMETERS | {"top_n_tokens": 2, "decoder_input_details": True}


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


@pytest.mark.parametrize("path", [HANDED_ON[0], "/invocations", "/generate_stream"])
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
    work: Any = order.request if isinstance(order, msg.SubmitHttp) else order.requests[0]
    where, before = work.continuation, order.keep.before
    assert where.ids == b"".join(pack([number]) for number in range(FIRST + 5))
    assert (before.ids, before.head) == (where.ids, first.head)
    if isinstance(order, msg.SubmitHttp):
        assert before.num_lines == where.num_lines > first.num_lines
    else:
        assert (before.num_lines, before.taken.num_tokens) == (0, FIRST + 5)
    assert before.num_tokens == FIRST + 5
    model.forget()


def _forms() -> dict[str, Callable[[], Form]]:
    """Return what makes forms of streams that the front end writes itself."""

    def tgi(parameters: dict[str, Any]) -> Form:
        body = {"inputs": "a", "parameters": parameters}
        return read_stream(body, Context()).form

    def lmi(parameters: dict[str, Any], **settings: Any) -> Form:
        named = parameters | {"stream": True, "output_formatter": "sse"}
        context = Context(clients=ClientSettings(**settings))
        parsed = read_lmi("a", named, context, is_body=True)
        assert isinstance(parsed.work, tuple)
        return form_of(parsed.work, parsed.reply)

    return {
        "tgi": lambda: tgi({}),
        "tgi with details": lambda: tgi({"details": True, "top_n_tokens": 2}),
        "lmi": lambda: lmi({}),
        "lmi with details": lambda: lmi(PARAMETERS),
        "lmi with top tokens": lambda: lmi(TOP),
        "lmi async": lambda: lmi(TOP, dialect="async"),
        "lmi as tgi": lambda: lmi(PARAMETERS, tgi_compat=True),
    }


def _deltas() -> Iterator[Delta]:
    for number in range(8):
        tokens = [Token(number, f" w{number}", -0.5, 1, top=(Token(9, "x", -1.0, 2),))]
        if number == 3:
            # Two at once, and then a text without any.
            tokens.append(Token(77, "", -0.25, 1, is_special=True))
        first = (Token(1, "a", None), Token(2, "b", -2.0)) if not number else ()
        yield Delta(
            f" w{number}",
            len(tokens),
            "length" if number == 7 else None,
            num_prompt_tokens=2,
            tokens=() if number == 4 else tuple(tokens),
            prompt_tokens=first,
            cumulative_logprob=-0.5 * number,
            ids=pack([token.id for token in tokens]),
        )


@pytest.mark.parametrize("name", _forms())
def test_what_another_process_has_made_is_continued(name: str) -> None:
    make = _forms()[name]
    plain = make()
    whole = b"".join(plain.write([each]) for each in _deltas())
    for count in range(1, 8):
        deltas = list(_deltas())
        first = make()
        assert isinstance(first, Restorable)
        events = b"".join(first.write([each]) for each in deltas[:count])
        taken = first.taken()
        assert taken is not None
        inner = make()
        assert isinstance(inner, Restorable)
        second = RestoredForm(inner)
        parts: list[Chunk] = [HttpChunk(events[:9]), HttpChunk(events[9:]), taken, *deltas[count:]]
        written = [second.write([each]) for each in parts]
        assert b"".join(written) == whole
        assert (second.is_over, second.status) == (True, 200)
        assert second.headers == first.headers


def test_what_is_not_continued_is_made_as_always() -> None:
    inner = _forms()["tgi"]()
    assert isinstance(inner, Restorable)
    form = RestoredForm(inner)
    plain = _forms()["tgi"]()
    for one, other in zip(_deltas(), _deltas(), strict=True):
        assert form.write([one]) == plain.write([other])
    assert form.failure(EngineError("no")) == plain.failure(EngineError("no"))


def test_of_several_answers_nothing_is_known() -> None:
    named = {"stream": True, "output_formatter": "sse", "n": 2}
    parsed = read_lmi("a", named, Context(), is_body=True)
    assert isinstance(parsed.work, tuple)
    form = form_of(parsed.work, parsed.reply)
    assert isinstance(form, Restorable)
    assert form.taken() is None


def test_a_chat_of_lmis_older_handlers_is_continued_between_two_events() -> None:
    """Their finish reasons are written here, into whole events only."""
    form = LegacyChatForm()
    form.write([HttpChunk(b"data: {}\n\n", headers={"content-type": EVENTS})])
    assert form.has_each_line
    form.write([HttpChunk(b"data: {")])
    assert not form.has_each_line
    form.write([HttpChunk(b"}\n\n")])
    assert form.has_each_line


def test_of_a_response_it_is_not_known(scripted: Scripted) -> None:
    """It never resumes."""
    model = Dying(scripted, "/v1/responses")
    follow(scripted.port, model.path, _body(model.path), **{WANTED: "1"})
    scripted.wait()
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
