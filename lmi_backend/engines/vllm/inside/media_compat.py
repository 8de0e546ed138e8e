"""The names of what vLLM loads media with, as compat.py has those of its engine."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

from lmi_backend.engines.vllm.inside import names

NO_HOSTS = ("nowhere.invalid",)
"""For `allowed_media_domains`, which opens all hosts when it is empty; .invalid has no names."""
_CONNECTION: Final = ("connection", "self.connection")
_FETCHES: Final = (
    ("MediaConnector.load_from_url", _CONNECTION, "get_bytes"),
    ("MediaConnector.load_from_url_async", _CONNECTION, "async_get_bytes"),
    ("HTTPConnection.async_get_bytes", ("self",), "get_async_response"),
)
"""Functions of vLLM's, what they fetch with, and the one method of it that they may call."""
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


def guard_media(
    check: Callable[[str, Any], None],
    connection: Any,
    bound: Callable[[Any], None],
    load_bounded: Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]],
) -> None:
    """Look at the URLs that vLLM is to load media from, and fetch them through a connection.

    Args:
        check: gets a URL and the folder that files may come from; raises if it is refused.
        connection: an HTTPConnection that refuses by itself too.
        bound: bounds what a reader of media decodes; called in the request's context.
        load_bounded: does that too, and calls the function that loads by it.
    """
    _check_fetches()
    MediaConnector = names.MediaConnector
    made = MediaConnector.__init__
    load, load_async = MediaConnector.load_from_url, MediaConnector.load_from_url_async
    _check_calls(load, load_async)

    @wraps(made)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if hasattr(self, "connection"):  # else NO_HOSTS stays
            self.connection, self.allowed_media_domains = connection, []

    @wraps(load)
    def guarded(self: Any, url: str, media_io: Any, *args: Any, **kwargs: Any) -> Any:
        check(url, self.allowed_local_media_path)
        bound(media_io)
        return load(self, url, media_io, *args, **kwargs)

    @wraps(load_async)
    async def guarded_async(self: Any, url: str, media_io: Any, *args: Any, **kwargs: Any) -> Any:
        check(url, self.allowed_local_media_path)
        return await load_bounded(
            media_io, lambda: load_async(self, url, media_io, *args, **kwargs)
        )

    MediaConnector.__init__ = make
    MediaConnector.load_from_url, MediaConnector.load_from_url_async = guarded, guarded_async


def _check_calls(load: Any, load_async: Any) -> None:
    """Check that the functions which load media take what ours are given in their place.

    Raises:
        TypeError: one does not.
    """
    for function in (load, load_async):
        taken = list(inspect.signature(function).parameters)[:3]
        if taken != ["self", "url", "media_io"]:
            raise TypeError(f"{function.__name__} takes ({', '.join(taken)}, …)")
    kinds = [inspect.iscoroutinefunction(each) for each in (load, load_async)]
    if kinds != [False, True]:
        raise TypeError("load_from_url is a coroutine, or load_from_url_async is none")


def _check_fetches() -> None:
    """Check in vLLM's source that each fetch passes what our connection replaces.

    Raises:
        LookupError: one does not, or may not.
    """
    for path, owner, expected in _FETCHES:
        key, _, method = path.partition(".")
        source = inspect.getsource(inspect.getattr_static(getattr(names, key), method))
        used = {
            each.attr
            for each in ast.walk(ast.parse(textwrap.dedent(source)))
            if isinstance(each, ast.Attribute) and ast.unparse(each.value) in owner
        }
        if used != {expected}:
            raise LookupError(f"{path} fetches by {', '.join(sorted(used)) or 'other means'}")
