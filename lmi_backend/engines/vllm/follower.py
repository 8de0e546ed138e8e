"""The vLLM ranks after the first: they take the steps that rank 0 takes."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from typing import Any

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.protocol import Rank
from lmi_backend.engines.vllm.inside import compat, names
from lmi_backend.engines.vllm.inside.arguments import engine_args
from lmi_backend.engines.vllm.inside.lockstep import follow
from lmi_backend.engines.vllm.inside.starting import before_loading
from lmi_backend.errors import ConfigurationError, EngineDeadError
from lmi_backend.ipc.engine import Capabilities

_log = logging.getLogger(__name__)


class VllmFollower(Rank):
    """One engine core, in a thread."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._is_dead = False

    async def start(self) -> Capabilities:
        before_loading(self._config)
        arguments = engine_args(self._config)
        ready: Future[None] = Future()
        thread = threading.Thread(
            target=self._follow, args=(arguments, ready), name="lmi-lockstep", daemon=True
        )
        thread.start()
        try:
            await asyncio.wrap_future(ready)
        except ValueError as error:
            raise ConfigurationError(f"vLLM refuses to start: {error}") from error
        return Capabilities("vllm", names.vllm_version, 0)

    def _follow(self, arguments: Any, ready: Future[None]) -> None:
        try:
            follow(compat.core_config(arguments), ready)
        except BaseException as error:  # noqa: BLE001  raised where it is started
            if not ready.done():
                ready.set_exception(error)
            _log.exception("this rank's engine core died")
            self._is_dead = True

    async def check_health(self) -> None:
        if self._is_dead:
            raise EngineDeadError("this rank's engine core died")
