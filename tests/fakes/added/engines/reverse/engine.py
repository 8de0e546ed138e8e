"""It answers with the words of the prompt, last first."""

from lmi_backend.engines.protocol import DeltaSink, Engine
from lmi_backend.generation import Delta, GenerateRequest
from lmi_backend.ipc.engine import Capabilities


class ReverseEngine(Engine):
    async def start(self) -> Capabilities:
        return Capabilities("reverse", "1.0", self._config.arguments["slots"])

    async def generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
        text = " ".join(reversed(str(request.prompt).split()))
        if self._config.arguments.get("upper"):
            text = text.upper()
        sink.take(Delta(text=text, num_tokens=1, num_prompt_tokens=1, finish_reason="stop"))
