"""Decode images, clips and sounds within bounds.

A file of 20 KB can have 170 million pixels, which take a second and half a gigabyte. vLLM bounds
the pixels of an image, and takes 999 images a request.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import MethodType
from typing import Any, ClassVar, Final

from lmi_backend.engines.protocol import tenant
from lmi_backend.engines.vllm import names
from lmi_backend.errors import RequestError, UnavailableError
from lmi_backend.shares import Shares

NO_HOSTS = ("nowhere.invalid",)
"""For `allowed_media_domains`, which opens all hosts when it is empty; .invalid has no names."""
TIMES: Final = 8
"""How many times the pixels of one request all may hold together; a tenant alone six times."""
WAIT_SECONDS: Final = 10.0
"""For room, before a request is refused."""
_LOOK_SECONDS: Final = 0.05
PIXEL_BYTES: Final = 3
"""Of decoded clips and sounds, that count as one pixel."""
_OF_HEADER: Final = (3, 4, 7)
"""OpenCV's CAP_PROP_FRAME_WIDTH, CAP_PROP_FRAME_HEIGHT and CAP_PROP_FRAME_COUNT."""
_MOST_PIXELS = 178_956_970
"""Before 0.32, which has a variable."""


def most_pixels() -> int:
    return int(getattr(names.envs, "VLLM_MAX_IMAGE_PIXELS", _MOST_PIXELS))


class Pixels:
    """What one request holds decoded. Used from several threads."""

    of_all: ClassVar[Shares[Pixels]] = Shares()
    """Of all requests of this process, by tenant: many bring such a file at once."""
    _lock: ClassVar = threading.Lock()

    def __init__(self, owner: str = "") -> None:
        self._owner = owner
        self._is_closed = False
        self.refusal: UnavailableError | None = None

    def take(self, pixels: int) -> None:
        """Take pixels.

        Raises:
            ValueError: the request has too many, or is finished.
            UnavailableError: its tenant's requests together have more than their share.
        """
        most = most_pixels()
        with Pixels._lock:
            if self._is_closed:
                raise ValueError("the request has finished")
            if 0 < most < (together := Pixels.of_all.of(self) + pixels):
                problem = f"the images of a request have {together} pixels together"
                raise ValueError(f"{problem}; {_accepted()}")
            if most > 0 and not Pixels.of_all.has_room(pixels, most * TIMES, self._owner):
                problem = "other requests hold the memory for decoded images, clips and sounds"
                self.refusal = UnavailableError(problem)
                raise self.refusal
            Pixels.of_all.add(self, pixels, self._owner)

    @property
    def has_room(self) -> bool:
        """Whether it may begin: who holds some already continues."""
        most = most_pixels()
        holds_some = Pixels.of_all.of(self) > 0
        return most <= 0 or holds_some or Pixels.of_all.has_room(most, most * TIMES, self._owner)

    def release(self) -> None:
        """Give all back to the other requests, once vLLM has what was made of it."""
        with Pixels._lock:
            Pixels.of_all.forget(self)

    def close(self) -> None:
        """Release all, and take nothing more: a thread may decode after its request is finished."""
        self._is_closed = True
        self.release()


budget: contextvars.ContextVar[Pixels | None] = contextvars.ContextVar("budget", default=None)
"""Of the request that is answered in this task."""


@contextmanager
def charged() -> Iterator[Pixels]:
    """Count what the request of this task decodes meanwhile.

    Raises:
        UnavailableError: there was no room, also if vLLM's server hid that.
    """
    pixels = Pixels(tenant.get())
    token = budget.set(pixels)
    try:
        yield pixels
    finally:
        budget.reset(token)
        pixels.close()
    if pixels.refusal is not None:
        raise pixels.refusal


async def wait_for_room() -> None:
    """Wait a while if the tenant holds its share."""
    pixels = budget.get()
    for _ in range(int(WAIT_SECONDS / _LOOK_SECONDS)):
        if pixels is None or pixels.has_room:
            break
        await asyncio.sleep(_LOOK_SECONDS)


def is_refused() -> bool:
    pixels = budget.get()
    return pixels is not None and pixels.refusal is not None


def release() -> None:
    """Give back what the request of this task holds, which vLLM has processed."""
    if (pixels := budget.get()) is not None:
        pixels.release()


@contextmanager
def counted(media_io: Any) -> Iterator[Any]:
    """Give a reader of media that counts for the request of this task, or for itself alone."""
    if (pixels := budget.get()) is not None:
        yield _Reader(media_io, pixels)
        return
    with charged() as pixels:
        yield _Reader(media_io, pixels)


class _Reader:
    """One of vLLM's readers of media, whose methods call the `load_bytes` here."""

    def __init__(self, own: Any, pixels: Pixels) -> None:
        self._own, self._pixels = own, pixels

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._own, name)
        if name == "image_io":
            return _Reader(member, self._pixels)
        return MethodType(member.__func__, self) if isinstance(member, MethodType) else member

    def load_bytes(self, data: bytes) -> Any:
        try:
            if not hasattr(self._own, "image_mode"):
                return self._load_other(data)
            # What is no image vLLM refuses in its own words.
            with suppress(OSError):
                _look(data, self._pixels)
            with _bombs_refused():
                return self._own.load_bytes(data)
        except ValueError as error:
            raise names.VLLMValidationError(str(error)) from error

    def _load_other(self, data: bytes) -> Any:
        """Load a clip or a sound: count what its header says, or its size, before what it has."""
        declared = _clip_pixels(self._own, data) if hasattr(self._own, "image_io") else 0
        expected = declared or len(data) // PIXEL_BYTES
        self._pixels.take(expected)
        loaded = self._own.load_bytes(data)
        if (size := _decoded_bytes(loaded) // PIXEL_BYTES) > expected:
            self._pixels.take(size - expected)
        return loaded


def _clip_pixels(media_io: Any, data: bytes) -> int:
    """Return the pixels of what a reader takes of a clip, by its header; 0 if unknown."""
    reader = names.OpenCVVideoBackendMixin
    if reader is None:
        return 0
    try:
        # Never released: OpenCV 5 ends the process at that, with a clip that is read from memory.
        capture = reader.open_video_capture(data)
        width, height, frames = (max(0, int(capture.get(each))) for each in _OF_HEADER)
    except Exception:  # noqa: BLE001  vLLM refuses it in its own words, or has another decoder
        return 0
    most = getattr(media_io, "num_frames", 0)
    return width * height * (min(frames, most) if most > 0 else frames)


def _decoded_bytes(loaded: Any) -> int:
    """Return the size of the arrays that a reader has made of a file."""
    if (size := getattr(loaded, "nbytes", None)) is not None:
        return int(size)
    parts = getattr(loaded, "media", loaded)
    return sum(map(_decoded_bytes, parts)) if isinstance(parts, tuple | list) else 0


def _look(file: bytes, pixels: Pixels) -> Any:
    """Return an image after reading its header only, and count its pixels."""
    from PIL import Image  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    # Some formats have images of other formats in them, whose size PIL looks at when it decodes
    # them: it refuses twice this number.
    Image.MAX_IMAGE_PIXELS = (most_pixels() + 1) // 2 or None
    formats = names.ALLOWED_IMAGE_FORMATS  # 0.32
    with _bombs_refused():
        image = Image.open(io.BytesIO(file), formats=formats and tuple(formats))
    pixels.take(image.width * image.height)
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
    return f"accepted: at most {most_pixels()} (VLLM_MAX_IMAGE_PIXELS)"


AT_ONCE: Final = 2
"""Requests whose images are decoded, or wait for vLLM's own processing, at one time."""
_pool = ThreadPoolExecutor(AT_ONCE, "lmi-images")


async def decode(files: Sequence[bytes], model_config: Any) -> list[Any]:
    if not model_config.is_multimodal_model:
        raise RequestError("is given, but the model takes text only", field="image")
    most = model_config.multimodal_config.get_limit_per_prompt("image")
    if len(files) > most:
        accepted = f"at most {most} (option.limit_mm_per_prompt)"
        raise RequestError(f"has {len(files)} files", field="image", accepted=accepted)
    loop, pixels = asyncio.get_running_loop(), budget.get() or Pixels(tenant.get())
    await wait_for_room()
    return await loop.run_in_executor(_pool, _decode, files, pixels)


def _decode(files: Sequence[bytes], pixels: Pixels) -> list[Any]:
    return [_image(index, file, pixels) for index, file in enumerate(files)]


def _image(index: int, file: bytes, pixels: Pixels) -> Any:
    try:
        image = _look(file, pixels)
        with _bombs_refused():
            return image.convert("RGB")
    except UnavailableError:
        raise
    except ValueError as error:
        raise RequestError(f"number {index} cannot be read: {error}", field="image") from error
    except Exception as error:
        # Its readers raise what they like: OSError, SyntaxError, struct.error …
        raise RequestError(
            f"number {index} is not an image that can be read", field="image"
        ) from error
