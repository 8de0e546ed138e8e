"""Decode images, clips and sounds within bounds, in threads.

A file of 20 KB can have 170 million pixels, which take a second and half a gigabyte. vLLM bounds
the pixels of an image, and takes 999 images a request.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final

from lmi_backend.engines.vllm.inside import media_compat, names
from lmi_backend.engines.vllm.media_budget import PIXEL_BYTES, MediaBudget, NoRoomError, Pixels
from lmi_backend.errors import RequestError

AT_ONCE: Final = 2
"""Requests whose images are decoded, or wait for vLLM's own processing, at one time."""
_pool = ThreadPoolExecutor(AT_ONCE, "lmi-images")
all_requests: Final = MediaBudget()

budget: contextvars.ContextVar[Pixels | None] = contextvars.ContextVar("budget", default=None)
"""Of the request that is answered in this task."""


@contextmanager
def charged() -> Iterator[None]:
    """Count what the request of this task decodes meanwhile.

    Raises:
        UnavailableError: it waited too long for room, also if vLLM's server hid that.
    """
    pixels = _pixels()
    budget.set(pixels)
    try:
        yield
    finally:
        pixels.close()
    if pixels.refusal is not None:
        raise pixels.refusal


def is_refused() -> bool:
    """Tell whether the request of this task waited too long for room."""
    pixels = budget.get()
    return pixels is not None and pixels.refusal is not None


def release() -> None:
    """Give back what the request of this task holds, which vLLM has processed."""
    if (pixels := budget.get()) is not None:
        pixels.release()


def _pixels() -> Pixels:
    return Pixels(media_compat.most_pixels(), all_requests, _accepted)


class _Tally:
    """What one decoder has taken, which it puts back if it must wait: it does all again then."""

    def __init__(self, pixels: Pixels) -> None:
        self._pixels, self.taken = pixels, 0

    def take(self, pixels: int) -> None:
        """See `Pixels.take`."""
        try:
            self._pixels.take(pixels)
        except NoRoomError:
            self._pixels.put_back(self.taken)
            self.taken = 0
            raise
        self.taken += pixels

    def look(self, file: bytes) -> Any:
        """Return an image after reading its header only, and count its pixels.

        Raises:
            OSError, ValueError: it is no image, or has too many pixels.
        """
        from PIL import Image  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        # Some formats have images of other formats in them, whose size PIL looks at when it decodes
        # them: it refuses twice this number.
        Image.MAX_IMAGE_PIXELS = (media_compat.most_pixels() + 1) // 2 or None
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


async def load_bounded(media_io: Any, load: Callable[[], Awaitable[Any]]) -> Any:
    """Return what vLLM loads with a reader of media, bounded by the budget of this task."""
    bound_reader(media_io)
    pixels = budget.get()
    return await (load() if pixels is None else pixels.retry(load))


def bound_reader(media_io: Any) -> None:
    """Bound what a reader of media decodes: images, the frames of a clip, or any other."""
    # The readers' functions are called in other threads, which have no context.
    tally = _Tally(budget.get() or _pixels())
    image_io = getattr(media_io, "image_io", media_io)
    if hasattr(image_io, "image_mode"):
        image_io.load_bytes = _bound(image_io.load_bytes, tally, _load_image)
    if not hasattr(media_io, "image_mode"):  # of clips, sounds or embeddings
        count = media_compat.clip_pixels if image_io is not media_io else None
        own = media_io.load_bytes

        def load_other(_: Any, data: bytes, tally: _Tally) -> Any:
            return _load_other(own, data, tally, count and count(media_io, data))

        media_io.load_bytes = _bound(own, tally, load_other)


def _bound(
    own: Callable[[bytes], Any], tally: _Tally, load: Callable[[Any, bytes, _Tally], Any]
) -> Callable[[bytes], Any]:
    def load_bytes(data: bytes) -> Any:
        try:
            return load(own, data, tally)
        except ValueError as error:
            raise names.VLLMValidationError(str(error)) from error

    return load_bytes


def _load_image(own: Callable[[bytes], Any], data: bytes, tally: _Tally) -> Any:
    # What is no image vLLM refuses in its own words.
    with suppress(OSError):
        tally.look(data)
    with _bombs_refused():
        return own(data)


def _load_other(
    own: Callable[[bytes], Any], data: bytes, tally: _Tally, declared: int | None
) -> Any:
    """Load what is no image: count the size in its header, or the file's, first; the rest later."""
    expected = declared or len(data) // PIXEL_BYTES
    tally.take(expected)
    loaded = own(data)
    size = media_compat.decoded_bytes(loaded) // PIXEL_BYTES
    if size > expected:
        tally.take(size - expected)
    return loaded


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
    pixels, loop = budget.get() or _pixels(), asyncio.get_running_loop()
    return await pixels.retry(lambda: loop.run_in_executor(_pool, _decode, files, pixels))


def _decode(files: Sequence[bytes], pixels: Pixels) -> list[Any]:
    tally = _Tally(pixels)
    return [_image(index, file, tally) for index, file in enumerate(files)]


def _image(index: int, file: bytes, tally: _Tally) -> Any:
    try:
        image = tally.look(file)
        with _bombs_refused():
            return image.convert("RGB")
    except NoRoomError:
        raise
    except ValueError as error:
        raise RequestError(f"number {index} cannot be read: {error}", field="image") from error
    except Exception as error:
        # Its readers raise what they like: OSError, SyntaxError, struct.error …
        raise RequestError(f"number {index} is no image that can be read", field="image") from error
