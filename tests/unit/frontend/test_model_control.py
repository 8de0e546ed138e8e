"""Triton's model repository, asked over HTTP."""

from lmi_backend.frontend.model_control import ModelControl
from tests.support.doubles.http_double import Handler, running


class Triton(Handler):
    def do_POST(self) -> None:
        # A Triton that stops waits 5 s for connections that stay open.
        assert self.headers["connection"] == "close"
        self.answer(200, '[{"name": "echo", "state": "READY"}]')


async def test_no_connection_stays_open_between_two_questions() -> None:
    with running(Triton) as url:
        control = ModelControl(url, {})
        try:
            assert (await control.index())["echo"].is_loaded
        finally:
            await control.close()
