"""LoRA adapters of an engine that serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.engines.protocol import Engine


async def change_adapters(
    engine: Engine, before: Mapping[str, str], adapters: Mapping[str, str]
) -> None:
    """Let an engine that has started know some LoRA adapters, and no others.

    Args:
        before: those that it knows, name to folder.
        adapters: those that it is to know.

    Raises:
        RequestError: one cannot be loaded or forgotten.
    """
    for name in before.keys() - adapters.keys():
        await engine.unload_adapter(name)
    for name, folder in adapters.items():
        if before.get(name) != folder:
            await engine.load_adapter(name, folder, preload=False, pin=False)
