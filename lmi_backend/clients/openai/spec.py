"""What OpenAI's clients are, with the paths that vLLM's server adds to OpenAI's."""

from __future__ import annotations

from typing import Final

from lmi_backend.clients.openai.errors import openai_failure
from lmi_backend.clients.openai.form import RefusingForm
from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS, EMBEDDINGS, MODELS, RESETS, TOKENS
from lmi_backend.clients.spec import ANYBODY, OPERATOR, RELAY, STORED, UPLOAD, ClientSpec, Path


def _work(template: str) -> Path:
    """Return a path of the engine's own server that computes something of a body."""
    return Path(template, RELAY, takes_place=True, by_tensor=True)


SPEC: Final = ClientSpec(
    name="openai",
    title="OpenAI",
    order=20,
    failure=openai_failure,
    form=RefusingForm,
    paths=(
        *(
            Path(each, RELAY, takes_place=True, counts_n=True, can_resume=True, by_tensor=True)
            for each in (CHATS, COMPLETIONS)
        ),
        _work(EMBEDDINGS),
        Path("/tokenize", RELAY, by_tensor=True),
        Path("/detokenize", RELAY, by_tensor=True),
        _work("/pooling"),
        _work("/classify"),
        _work("/score"),
        _work("/v1/score"),
        _work("/rerank"),
        _work("/v1/rerank"),
        _work("/v2/rerank"),
        _work("/v2/embed"),
        _work(TOKENS),
        Path("/v1/audio/transcriptions", UPLOAD, takes_place=True),
        Path("/v1/audio/translations", UPLOAD, takes_place=True),
        *(
            Path(f"{each}/{word}", RELAY, by_tensor=True)
            for each in (CHATS, COMPLETIONS)
            for word in ("render", "derender")
        ),
        Path("/tokenizer_info", STORED, "GET", OPERATOR),
        *(Path(each, STORED, "POST", OPERATOR) for each in RESETS),
        Path(MODELS, "list models", "GET", by_tensor=True),
        Path(f"{MODELS}/{{model:path}}", "show model", "GET"),
        Path("/v1/load_lora_adapter", "load adapter", who=OPERATOR),
        Path("/v1/unload_lora_adapter", "unload adapter", who=OPERATOR),
        Path("/version", "version", "GET", ANYBODY, by_tensor=True),
    ),
)
