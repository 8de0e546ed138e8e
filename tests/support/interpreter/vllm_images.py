"""Decode media as the worker does, from tensors and from bodies; write how each ended, as JSON.

Runs in the engine's Python, with a bound of 10,000 pixels.
"""

import asyncio
import base64
import io
import json
import os
import struct
import sys
from collections.abc import Awaitable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy
from PIL import Image
from vllm.multimodal.media.base import MediaWithBytes
from vllm.multimodal.media.image import ImageMediaIO
from vllm.multimodal.media.video import VideoMediaIO

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.vllm import images, names
from lmi_backend.engines.vllm.bodies import BodyAnswer
from lmi_backend.engines.vllm.images import Pixels
from lmi_backend.engines.vllm.starting import engine_args
from lmi_backend.errors import UnavailableError
from lmi_backend.generation import HttpChunk

MOST = 2
"""Images of a request."""
SEES = SimpleNamespace(
    is_multimodal_model=True,
    multimodal_config=SimpleNamespace(get_limit_per_prompt=lambda kind: MOST),
)


def file(width: int, height: int, kind: str = "PNG", frames: int = 1) -> bytes:
    made = Image.new("RGB", (width, height))
    data = io.BytesIO()
    more = {"save_all": True, "append_images": [made] * (frames - 1)} if frames > 1 else {}
    made.save(data, kind, **more)
    return data.getvalue()


def icon(width: int, height: int) -> bytes:
    """Return an icon of 16 by 16, by its header, with a larger image in it."""
    inside = file(width, height)
    return struct.pack("<3H4B2H2I", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inside), 22) + inside


SMALL, HALF, LARGE = file(10, 10), file(60, 100), file(100, 101)
CASES: dict[str, list[bytes]] = {
    "small": [SMALL, HALF],
    "large": [LARGE],
    "together": [HALF, HALF],
    "too many": [SMALL] * (MOST + 1),
    "no image": [b"no image"],
    "half an image": [SMALL[:40]],
    "an icon": [icon(16, 16)],
    "an icon of another size": [icon(200, 200)],
    "a film": [file(60, 100, "GIF", frames=3)],
    "pages": [file(60, 100, "TIFF", frames=3)],
    "a program": [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n"],
}


async def ended(work: Awaitable[list[Any]]) -> str:
    try:
        return " ".join("x".join(map(str, image.size)) for image in await work)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"


def url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64," + base64.b64encode(data).decode()


async def by_tensor(files: list[bytes], config: Any = SEES) -> list[Any]:
    with images.charged():
        return await images.decode(files, config)


async def by_body(files: list[bytes]) -> list[Any]:
    """Let vLLM's connector load them, one for each message of a chat."""
    with images.charged():
        return [await image(each) for each in files]


async def image(file: bytes) -> Any:
    connector = names.MEDIA_CONNECTOR_REGISTRY.load("http")
    return (await connector.fetch_image_async(url("image/png", file))).media


class Header:
    """Of a clip that OpenCV would read: width, height and frames; to release it ends a process."""

    def __init__(self, *values: int) -> None:
        self.get = dict(zip((3, 4, 7), values, strict=True)).__getitem__


class Reader:
    """A reader of clips or sounds, whose decoder is not here."""

    def __init__(self, made: Any, image_io: Any = None, num_frames: int = 4) -> None:
        self.made, self.num_frames, self.has_read = made, num_frames, False
        if image_io is not None:
            self.image_io = image_io

    def load_base64(self, kind: str, data: str) -> Any:
        return self.load_bytes(base64.b64decode(data))

    def load_bytes(self, data: bytes) -> Any:
        self.has_read = True
        return self.made


def clip(frames: int) -> Any:
    """Return what vLLM's reader of clips makes of one of 50 by 50."""
    array = numpy.zeros((frames, 50, 50, 3), numpy.uint8)
    return MediaWithBytes((array, {}), b"")


def frames(count: int) -> bytes:
    """Return frames of 50 by 50, as vLLM's clients send them one by one."""
    return b",".join([base64.b64encode(file(50, 50, "JPEG"))] * count)


async def others() -> dict[str, str]:
    """Return how clips and sounds ended, and whether their decoders were called."""
    headers = {"declared": Header(50, 50, 5), "sampled": Header(50, 50, 99)}
    names.OpenCVVideoBackendMixin = SimpleNamespace(
        open_video_capture=lambda data: headers[data.decode()]
    )
    image_io = SimpleNamespace(image_mode="RGB", load_bytes=None)
    read = {
        "declared": Reader(clip(1), image_io, num_frames=-1),
        "sampled": Reader(clip(4), image_io),
        "not declared": Reader(clip(5), image_io),
        "a sound": Reader((numpy.zeros(5000, numpy.float32), 8000)),
        "a long sound": Reader((numpy.zeros(9000, numpy.float32), 8000)),
    }
    ended = {}
    for name, reader in read.items():
        outcome = await loaded(reader, url("video/avi", name.encode()))
        ended[name] = f"{reader.has_read} {outcome}"
    for count in (4, 5):
        reader = VideoMediaIO(ImageMediaIO(), num_frames=-1)
        given = "data:video/jpeg;base64," + frames(count).decode()
        ended[f"{count} frames"] = await loaded(reader, given)
    return ended | {"held": str(Pixels.of_all.size)}


async def loaded(reader: Any, given: str) -> str:
    try:
        with images.charged():
            await names.MEDIA_CONNECTOR_REGISTRY.load("http").load_from_url_async(given, reader)
            return str(Pixels.of_all.size)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"


async def beside_others() -> list[str]:
    """Return how images ended while their tenant has its share of all, and once it has less."""
    full = [Pixels() for _ in range(6)]
    for each in full:
        each.take(10_000)
    waiting = [asyncio.create_task(ended(way([HALF]))) for way in (by_tensor, by_body)]
    await asyncio.sleep(0.2)
    outcomes = [str(any(each.done() for each in waiting))]
    full[0].close()
    full[1].close()
    outcomes += await asyncio.gather(*waiting)
    for _ in range(2):
        Pixels().take(10_000)
    images.WAIT_SECONDS = 0.1
    outcomes += [await ended(by_tensor([HALF])), await ended(by_body([HALF]))]
    return [*outcomes, await ended(answered())]


async def answered() -> list[Any]:
    """Answer as vLLM's server does that makes an error of its own of each: nothing may be sent."""
    sent: list[HttpChunk] = []
    sink = SimpleNamespace(take=sent.append, defer=None)
    engine = SimpleNamespace(errored=False)
    with images.charged():
        answer = BodyAnswer(sink, engine, sends_ids=False)  # type: ignore[arg-type]
        with suppress(UnavailableError):
            await image(HALF)
        answer.take(HttpChunk(b"internal error", is_last=True, status=500))
        assert not sent
    return sent


async def turns_of_the_loop(work: Awaitable[Any]) -> int:
    """Return how often the loop turned while something was done."""
    task, count = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    return count


async def main() -> None:
    os.environ["VLLM_MAX_IMAGE_PIXELS"] = "10000"
    engine_args(EngineConfig(model=sys.argv[1]))
    seen: dict[str, Any] = {
        name: [await ended(by_tensor(files)), await ended(by_body(files))]
        for name, files in CASES.items()
    }
    blind = SimpleNamespace(is_multimodal_model=False)
    seen["blind"] = [await ended(by_tensor([SMALL], blind))]
    seen["others"] = await others()
    seen["beside others"] = await beside_others()
    os.environ["VLLM_MAX_IMAGE_PIXELS"] = "100000000"
    images.WAIT_SECONDS = 10.0
    turns = await turns_of_the_loop(by_tensor([file(2000, 2000)]))
    json.dump([seen, turns], sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
