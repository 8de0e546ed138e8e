"""What clients of Text Generation Inference are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.clients.spec import READ, ClientSpec, Path
from lmi_backend.clients.tgi.errors import tgi_failure
from lmi_backend.clients.tgi.reading import read_either, read_stream, read_whole
from lmi_backend.clients.tgi.tokens import read_chat, read_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.clients.spec import Read
    from lmi_backend.engine_config import Context


def _body(template: str, read: Callable[[dict[str, Any], Context], Read]) -> Path:
    return Path(template, READ, takes_place=True, counts_n=True, can_resume=True, read=read)


SPEC: Final = ClientSpec(
    name="tgi",
    title="Text Generation Inference",
    order=50,
    failure=tgi_failure,
    form=HttpForm,
    paths=(
        _body("/generate", read_whole),
        _body("/generate_stream", read_stream),
        _body("/", read_either),
        # vLLM's clients send `prompt` or `messages` to the same path.
        Path("/tokenize", READ, read=read_text, member="inputs"),
        Path("/chat_tokenize", READ, read=read_chat),
        Path("/info", "info", "GET"),
    ),
)
