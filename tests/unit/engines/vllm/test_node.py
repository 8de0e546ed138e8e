"""A further machine of vLLM's own: when it notices that the first is gone."""

import asyncio
import socket

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.vllm import engine
from lmi_backend.errors import EngineDeadError


async def test_the_first_machine_may_come_late_and_its_end_is_noticed() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    watch = asyncio.create_task(engine.outlive("127.0.0.1", port))
    joined: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        joined.set_result(writer)

    server = await asyncio.start_server(take, "127.0.0.1", port)
    try:
        writer = await joined
        assert not watch.done()
        writer.close()
        await watch
    finally:
        server.close()
    part = engine.VllmNode(EngineConfig(model="m"))
    await part.check_health()
    part.watch = watch
    with pytest.raises(EngineDeadError, match="first machine is gone"):
        await part.check_health()
