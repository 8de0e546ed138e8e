"""Fetch URLs with vLLM's own connector behind our rules: a case a line in, how it ended out.

Runs in the engine's environment.
"""

import asyncio
import functools
import json
import os
import socket
import sys
from typing import Any

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.vllm import compat, names
from lmi_backend.engines.vllm.starting import engine_args

# To build the parser of all arguments takes longer than to read one with it.
compat.argument_parser = functools.cache(compat.argument_parser)

REGISTRY = names.MEDIA_CONNECTOR_REGISTRY
OWN = REGISTRY.register("http")
RESOLVE = socket.getaddrinfo


def resolve_with(names: dict[str, list[str]]) -> None:
    """Let some names have addresses of the test's choice: there is no name server to ask."""

    def resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        hosts = names.get(host, [host])
        return [found for each in hosts for found in RESOLVE(each, *args, **kwargs)]

    socket.getaddrinfo = resolve


async def fetch(case: dict[str, Any]) -> dict[str, str]:
    OWN(names.MediaConnector)
    hosts = case["vllm_hosts"]
    if case["hosts"] is not None:
        listed = {"allowed_media_domains": case["hosts"]} if case["hosts"] else {}
        hosts = engine_args(EngineConfig(model=sys.argv[1], arguments=listed)).allowed_media_domains
    if case["is_unhooked"]:
        OWN(names.MediaConnector)
    connector = REGISTRY.load(
        "http", allowed_local_media_path=case["folder"], allowed_media_domains=hosts
    )
    resolve_with(case["names"])
    try:
        if case["is_async"]:
            image = await connector.fetch_image_async(case["url"])
        else:
            image = connector.fetch_image(case["url"])
    except Exception as error:  # noqa: BLE001
        return {"error": type(error).__name__, "text": str(error)}
    return {"error": "", "text": str(image.size)}


async def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM's log
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(await fetch(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
