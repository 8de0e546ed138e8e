"""Decode images, clips and sounds within bounds, in threads.

A file of 20 KB can have 170 million pixels, which take a second and half a gigabyte. vLLM bounds
the pixels of an image, and takes 999 images a request.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lmi_backend.engines.vllm import names
from lmi_backend.errors import LmiError, RequestError, UnavailableError

NO_HOSTS = ("nowhere.invalid",)
"""For `allowed_media_domains`, which opens all hosts when it is empty; .invalid has no names."""
_OF_HEADER: Final = (3, 4, 7)
"""OpenCV's CAP_PROP_FRAME_WIDTH, CAP_PROP_FRAME_HEIGHT and CAP_PROP_FRAME_COUNT."""
_MOST_PIXELS = 178_956_970
"""Before 0.32, which has a variable."""


def most_pixels() -> int:
    """Return the pixels that vLLM lets an image have."""
    return int(getattr(names.envs, "VLLM_MAX_IMAGE_PIXELS", _MOST_PIXELS))


def image_formats() -> tuple[str, ...] | None:
    """Return PIL's names of the formats that vLLM reads; None for all."""
    formats = names.ALLOWED_IMAGE_FORMATS  # 0.32
    return None if formats is None else tuple(formats)


def clip_pixels(media_io: Any, data: bytes) -> int:
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


def decoded_bytes(loaded: Any) -> int:
    """Return the size of the arrays that a reader has made of a file."""
    if (size := getattr(loaded, "nbytes", None)) is not None:
        return int(size)
    parts = getattr(loaded, "media", loaded)
    return sum(map(decoded_bytes, parts)) if isinstance(parts, tuple | list) else 0


# What all requests of a worker hold decoded has one bound: many requests bring such a file at once.

T = TypeVar("T")

TIMES: Final = 8
"""How many times the pixels of one request all requests may hold together."""
WAIT_SECONDS: Final = 10.0
"""For room, before a request is refused."""
PIXEL_BYTES: Final = 3
"""Of decoded clips and sounds, that count as one pixel."""


class NoRoomError(Exception):
    """Other requests hold the memory that a decoder needs now; `Pixels.retry` waits for it."""


@dataclass(eq=False)
class _Waiting:
    owner: Pixels
    pixels: int
    loop: asyncio.AbstractEventLoop
    granted: asyncio.Future[None]


class MediaBudget:
    """Counts the pixels of all requests. Used from several threads.

    Requests get room in the order in which they wait. The oldest one that holds any may use the
    last share, which is as much as it can need: it always completes, so others get its room.
    """

    def __init__(self) -> None:
        self._taken: dict[Pixels, int] = {}
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """Pixels that requests have taken."""
        return sum(self._taken.values())

    def take(self, owner: Pixels, pixels: int) -> bool:
        """Give pixels to a request; False if it must wait."""
        with self._lock:
            overtakes = bool(self._waiting) and owner not in self._taken
            return not overtakes and self._give(owner, pixels)

    async def wait(self, owner: Pixels, pixels: int) -> None:
        """Wait until pixels were given to a request.

        Raises:
            UnavailableError: other requests hold them for too long.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(owner, pixels, loop, loop.create_future())
        with self._lock:
            self._waiting.append(waiting)
            self._grant()
        try:
            await asyncio.wait_for(waiting.granted, WAIT_SECONDS)
        except asyncio.TimeoutError:
            problem = "other requests hold the memory for decoded images, clips and sounds"
            raise UnavailableError(problem) from None
        finally:
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                self._grant()

    def release(self, owner: Pixels) -> None:
        """Take back all that a request holds or waits for."""
        with self._lock:
            self._taken.pop(owner, None)
            self._waiting = [each for each in self._waiting if each.owner is not owner]
            self._grant()

    def _grant(self) -> None:
        is_blocked = False
        for each in list(self._waiting):
            if is_blocked and each.owner is not next(iter(self._taken), None):
                continue
            if not self._give(each.owner, each.pixels):
                is_blocked = True
                continue
            self._waiting.remove(each)
            each.loop.call_soon_threadsafe(_set, each.granted)

    def _give(self, owner: Pixels, pixels: int) -> bool:
        is_oldest = next(iter(self._taken), owner) is owner
        most = owner.most * (TIMES if is_oldest else TIMES - 1)
        if 0 < most < self.taken + pixels:
            return False
        self._taken[owner] = self._taken.get(owner, 0) + pixels
        return True


def _set(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_result(None)


class Pixels:
    """What one request may hold, and holds, of a budget. Used from several threads.

    Args:
        most: pixels of one request; 0 for no bound.
        budget: of all requests.
        accepted: the end of an error's text.
    """

    def __init__(self, most: int, budget: MediaBudget, accepted: Callable[[], str]) -> None:
        self.most, self._budget, self._accepted = most, budget, accepted
        self._left = most
        self._spare = self._missing = 0
        """Given by the budget and not used yet; and what it refused last."""
        self._lock = threading.Lock()
        self.refusal: LmiError | None = None
        """Why this request failed for want of room."""
        self._is_closed = False

    def take(self, pixels: int) -> None:
        """Take pixels.

        Raises:
            ValueError: the request has too many, or is finished.
            NoRoomError: all requests together have too many.
        """
        with self._lock:
            if self._is_closed:
                raise ValueError("the request has finished")
            if self.most > 0 > self._left - pixels:
                together = self.most - self._left + pixels
                problem = f"the images of a request have {together} pixels together"
                raise ValueError(f"{problem}; {self._accepted()}")
            needed = max(0, pixels - self._spare)
            if needed and not self._budget.take(self, needed):
                self._missing = needed
                raise NoRoomError
            self._spare = max(0, self._spare - pixels)
            self._left -= pixels

    def put_back(self, pixels: int) -> None:
        """Undo a `take`: what a decoder does again is not counted twice."""
        with self._lock:
            self._left += pixels
            self._spare += pixels

    async def retry(self, decode: Callable[[], Awaitable[T]]) -> T:
        """Return what a decoder makes; call it again when there is the room that it missed.

        Raises:
            UnavailableError: there was none in time.
        """
        while True:
            try:
                return await decode()
            except NoRoomError:
                await self._wait(self._missing)

    async def _wait(self, missing: int) -> None:
        try:
            await self._budget.wait(self, missing)
        except UnavailableError as error:
            self.refusal = error
            raise
        with self._lock:
            self._spare += missing

    def release(self) -> None:
        """Give all back to the other requests, once vLLM has what was made of it."""
        with self._lock:
            self._spare = 0
            self._budget.release(self)

    def close(self) -> None:
        """Release all, and take nothing more: a thread may decode after its request is finished."""
        with self._lock:
            self._is_closed = True
        self.release()


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
    return Pixels(most_pixels(), all_requests, _accepted)


class _Tally:
    """What one decoder has taken, which it puts back if it must wait: it does all again then."""

    def __init__(self, pixels: Pixels) -> None:
        self._pixels, self.taken = pixels, 0

    def take(self, pixels: int) -> None:
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
        Image.MAX_IMAGE_PIXELS = (most_pixels() + 1) // 2 or None
        with _bombs_refused():
            image = Image.open(io.BytesIO(file), formats=image_formats())
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
    return f"accepted: at most {most_pixels()} (VLLM_MAX_IMAGE_PIXELS)"


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
        count = clip_pixels if image_io is not media_io else None
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
    size = decoded_bytes(loaded) // PIXEL_BYTES
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
