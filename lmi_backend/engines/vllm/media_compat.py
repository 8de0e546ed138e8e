"""The names of what vLLM loads media with, as compat.py has those of its engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from vllm import envs
from vllm.connections import HTTPConnection

try:  # moved between 0.13 and 0.20
    from vllm.multimodal.media import MediaConnector
except ImportError:
    from vllm.multimodal.utils import MediaConnector

__all__ = [
    "NO_HOSTS",
    "HTTPConnection",
    "MediaConnector",
    "guard_media",
    "image_formats",
    "most_pixels",
]

NO_HOSTS = ("nowhere.invalid",)
"""For `allowed_media_domains`, which opens all hosts when it is empty; no name ends in .invalid."""
_MOST_PIXELS = 178_956_970
"""Before 0.32, which has a variable."""


def most_pixels() -> int:
    """Return the pixels that vLLM lets an image have."""
    return int(getattr(envs, "VLLM_MAX_IMAGE_PIXELS", _MOST_PIXELS))


def image_formats() -> tuple[str, ...] | None:
    """Return PIL's names of the formats that vLLM reads; None for all."""
    try:  # 0.32
        from vllm.multimodal.image import ALLOWED_IMAGE_FORMATS  # noqa: PLC0415  imports PIL
    except ImportError:
        return None
    return tuple(ALLOWED_IMAGE_FORMATS)


def guard_media(
    check: Callable[[str, Any], None],
    connection: Any,
    bound: Callable[[Callable[[bytes], Any]], Callable[[bytes], Any]],
) -> None:
    """Look at the URLs that vLLM is to load media from, and fetch them through a connection.

    Args:
        check: gets a URL and the folder that files may come from; raises if it is refused.
        connection: an HTTPConnection that refuses by itself too.
        bound: wraps the function that decodes a file, once for each; called in the request's
            context.
    """
    made = MediaConnector.__init__
    load, load_async = MediaConnector.load_from_url, MediaConnector.load_from_url_async

    @wraps(made)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if hasattr(self, "connection"):  # else NO_HOSTS stays
            self.connection, self.allowed_media_domains = connection, []

    @wraps(load)
    def guarded(self: Any, url: str, media_io: Any, *args: Any, **kwargs: Any) -> Any:
        check(url, self.allowed_local_media_path)
        _bound_images(media_io, bound)
        return load(self, url, media_io, *args, **kwargs)

    @wraps(load_async)
    async def guarded_async(self: Any, url: str, media_io: Any, *args: Any, **kwargs: Any) -> Any:
        check(url, self.allowed_local_media_path)
        _bound_images(media_io, bound)
        return await load_async(self, url, media_io, *args, **kwargs)

    MediaConnector.__init__ = make
    MediaConnector.load_from_url, MediaConnector.load_from_url_async = guarded, guarded_async


def _bound_images(media_io: Any, bound: Callable[[Any], Any]) -> None:
    """Bound the images that a reader of media decodes: its own, or the frames of a video."""
    reader = getattr(media_io, "image_io", media_io)
    if hasattr(reader, "image_mode"):  # of images, not of audio or embeddings
        reader.load_bytes = bound(reader.load_bytes)
