"""Decode images within bounds, in threads.

A file of 20 KB can have 170 million pixels, which take a second and half a gigabyte. vLLM bounds
the pixels of an image, and takes 999 images a request.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, Final

from lmi_backend.engines.vllm import compat, media_compat
from lmi_backend.errors import RequestError

AT_ONCE: Final = 2
"""Requests whose images are decoded, or wait for vLLM's own processing, at one time."""
_pool = ThreadPoolExecutor(AT_ONCE, "lmi-images")


class PixelBudget:
    """The pixels that all images of one request may have together. Used from several threads."""

    def __init__(self) -> None:
        self._most = media_compat.most_pixels()
        self._left = self._most
        self._lock = threading.Lock()

    def take(self, pixels: int) -> None:
        """Take pixels from the budget.

        Raises:
            ValueError: that many are not left.
        """
        with self._lock:
            self._left -= pixels
            if self._most > 0 > self._left:
                problem = f"the images of a request have {self._most - self._left} pixels together"
                raise ValueError(f"{problem}; {_accepted()}")

    def look(self, file: bytes) -> Any:
        """Return an image of which only the header was read, and take its pixels.

        Raises:
            OSError, ValueError: it is no image, or has too many pixels.
        """
        from PIL import Image  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        # Some formats have images of other formats in them, whose size PIL looks at when it decodes
        # them: it refuses twice this number.
        Image.MAX_IMAGE_PIXELS = (self._most + 1) // 2 or None
        with _bombs_refused():
            image = Image.open(io.BytesIO(file), formats=media_compat.image_formats())
        self.take(image.width * image.height)
        return image


@contextmanager
def _bombs_refused() -> Iterator[None]:
    """Raise ValueError for PIL's own error at an image that has too many pixels."""
    from PIL import Image  # noqa: PLC0415

    try:
        yield
    except Image.DecompressionBombError as error:
        raise ValueError(f"an image has too many pixels; {_accepted()}") from error


def _accepted() -> str:
    return f"accepted: at most {media_compat.most_pixels()} (VLLM_MAX_IMAGE_PIXELS)"


budget: contextvars.ContextVar[PixelBudget | None] = contextvars.ContextVar("budget", default=None)
"""Of the HTTP body that is answered in this task."""


def bounded(load: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a function of vLLM's that decodes a file, bounded by the budget of this task."""
    # The function itself is called in another thread, which has no context.
    pixels = budget.get() or PixelBudget()

    @wraps(load)
    def load_bounded(data: bytes) -> Any:
        try:
            # What is no image vLLM refuses in its own words.
            with suppress(OSError):
                pixels.look(data)
            with _bombs_refused():
                return load(data)
        except ValueError as error:
            raise compat.VLLMValidationError(str(error)) from error

    return load_bounded


async def decode(files: Sequence[bytes], model_config: Any) -> list[Any]:
    """Return the images of a request.

    Raises:
        RequestError: the model takes no images, there are too many, or one cannot be read.
    """
    if not model_config.is_multimodal_model:
        raise RequestError("is given, but the model takes text only", field="image")
    most = model_config.multimodal_config.get_limit_per_prompt("image")
    if len(files) > most:
        accepted = f"at most {most} (option.limit_mm_per_prompt)"
        raise RequestError(f"has {len(files)} files", field="image", accepted=accepted)
    return await asyncio.get_running_loop().run_in_executor(_pool, _decode, files)


def _decode(files: Sequence[bytes]) -> list[Any]:
    pixels = PixelBudget()
    return [_image(index, file, pixels) for index, file in enumerate(files)]


def _image(index: int, file: bytes, pixels: PixelBudget) -> Any:
    try:
        image = pixels.look(file)
        with _bombs_refused():
            return image.convert("RGB")
    except ValueError as error:
        raise RequestError(f"number {index} cannot be read: {error}", field="image") from error
    except Exception as error:
        # Its readers raise what they like: OSError, SyntaxError, struct.error …
        raise RequestError(f"number {index} is no image that can be read", field="image") from error
