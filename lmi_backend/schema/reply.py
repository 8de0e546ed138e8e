"""What goes back: which outputs a client asked for, and their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lmi_backend.generation import Delta

Output = str | int
WireFormat = Literal["lmi", "vllm"]

_LMI_FINISH = {"stop": "eos_token", "length": "length", "abort": "abort", "error": "error"}


@dataclass
class Reply:
    """Turns the deltas of one request into named outputs.

    Args:
        wire_format: whose client asked.
        prompt_field: what the client calls the prompt, for error texts.
        prefix: text put before the answer: the prompt, if it is wanted back.
        outputs: names of the optional outputs wanted.
        stream: whether text comes in pieces.
    """

    wire_format: WireFormat
    prompt_field: str
    prefix: str = ""
    outputs: frozenset[str] = frozenset()
    stream: bool = False
    _text: str = ""

    def values(self, delta: Delta) -> dict[str, Output]:
        """Return the outputs of one response."""
        self._text += delta.text
        values = self._lmi(delta) if self.wire_format == "lmi" else self._vllm(delta)
        optional: dict[str, Output] = {
            "finish_reason": self._finish_reason(delta),
            "num_input_tokens": delta.num_prompt_tokens,
            "num_output_tokens": delta.num_tokens,
        }
        return values | {name: optional[name] for name in optional if name in self.outputs}

    def _vllm(self, delta: Delta) -> dict[str, Output]:
        return {"text_output": delta.text if self.stream else self.prefix + delta.text}

    def _lmi(self, delta: Delta) -> dict[str, Output]:
        """LMI's last line carries the whole text; before it, only pieces."""
        is_piece = self.stream or "text_output" in self.outputs
        piece: dict[str, Output] = {"text_output": delta.text} if is_piece else {}
        whole = {"generated_text": self.prefix + self._text} if delta.finish_reason else {}
        return piece | whole

    def _finish_reason(self, delta: Delta) -> str:
        if self.wire_format == "vllm":
            # The word Triton's vLLM backend sends until the end is Python's None as text.
            return str(delta.finish_reason)
        if delta.finish_reason == "stop" and delta.stop_reason is not None:
            return "stop_sequence"
        return _LMI_FINISH.get(delta.finish_reason or "", "")
