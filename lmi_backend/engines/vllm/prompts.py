"""Prompts that are more than text."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from lmi_backend.errors import RequestError

if TYPE_CHECKING:
    from lmi_backend.generation import GenerateRequest


def image_prompt(request: GenerateRequest, model_config: Any) -> dict[str, Any]:
    """Return vLLM's prompt of text and images.

    Raises:
        RequestError: the model takes no images, or a file is none.
    """
    if not model_config.is_multimodal_model:
        raise RequestError("is given, but the model takes text only", field="image")
    if not isinstance(request.prompt, str):
        raise RequestError("cannot go with token ids", field="image")
    images = [_image(place, file) for place, file in enumerate(request.images)]
    return {"prompt": request.prompt, "multi_modal_data": {"image": images}}


def _image(place: int, file: bytes) -> Any:
    # Only models with eyes need it; vLLM brings it.
    from PIL import Image  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    try:
        return Image.open(io.BytesIO(file)).convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        problem = f"number {place} is no image that can be read"
        raise RequestError(problem, field="image") from error
