"""Decode images as the worker does, from tensors and from bodies; write how each ended, as JSON.

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
from types import SimpleNamespace
from typing import Any

from PIL import Image

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.vllm import images, media_compat
from lmi_backend.engines.vllm.arguments import engine_args

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


async def by_body(files: list[bytes]) -> list[Any]:
    """Let vLLM's connector load them, one for each message of a chat."""
    images.budget.set(images.PixelBudget())
    made = []
    for each in files:
        url = "data:image/png;base64," + base64.b64encode(each).decode()
        made.append((await media_compat.MediaConnector().fetch_image_async(url)).media)
    return made


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
    seen = {
        name: [await ended(images.decode(files, SEES)), await ended(by_body(files))]
        for name, files in CASES.items()
    }
    blind = SimpleNamespace(is_multimodal_model=False)
    seen["blind"] = [await ended(images.decode([SMALL], blind))]
    os.environ["VLLM_MAX_IMAGE_PIXELS"] = "100000000"
    turns = await turns_of_the_loop(images.decode([file(2000, 2000)], SEES))
    json.dump([seen, turns], sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
