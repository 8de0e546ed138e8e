"""Triton's model repository, asked over HTTP."""

from aiohttp import web
from aiohttp.test_utils import TestServer

from lmi_backend.frontend.model_control import ModelControl


async def test_no_connection_stays_open_between_two_questions() -> None:
    """A Triton that stops waits 5 s for those that do."""
    headers: list[str] = []

    async def index(request: web.Request) -> web.Response:
        headers.append(request.headers.get("connection", ""))
        return web.json_response([{"name": "echo", "state": "READY"}])

    application = web.Application()
    application.router.add_post("/v2/repository/index", index)
    async with TestServer(application) as server:
        control = ModelControl(f"http://127.0.0.1:{server.port}", {})
        try:
            assert (await control.index())["echo"].is_loaded
        finally:
            await control.close()
    assert headers == ["close"]
