"""It answers with the words of the prompt, last first."""

from collections.abc import AsyncGenerator

from lmi_backend.engine_config import EngineConfig
from lmi_backend.generation import Delta, GenerateRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats


class ReverseEngine:
    def __init__(self, config: EngineConfig) -> None:
        self._arguments = config.arguments

    async def start(self) -> Capabilities:
        return Capabilities("reverse", "1.0", self._arguments["slots"])

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        text = " ".join(reversed(str(request.prompt).split()))
        if self._arguments.get("upper"):
            text = text.upper()
        yield Delta(text=text, num_tokens=1, num_prompt_tokens=1, finish_reason="stop")

    def stats(self) -> EngineStats:
        return EngineStats()

    async def check_health(self) -> None:
        pass

    async def close(self) -> None:
        pass
