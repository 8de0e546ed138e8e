"""Run the front end's tests on the event loop that the front end runs on."""

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, object]:
    return {"uvloop": uvloop.new_event_loop}
