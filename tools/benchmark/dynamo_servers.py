"""Dynamo's front end, and its vLLM worker, as the engine's environment can run them.

Runs there: `python dynamo_servers.py PORT ARGUMENTS-OF-THE-WORKER`. The front end is a child.

Dynamo 1.6 is for vLLM 0.31 on a GPU. Two of its imports fail with vLLM 0.32 on a CPU: one for
pictures (torchvision), one for embeddings in several processes. Plain chats use neither.
"""

from __future__ import annotations

import subprocess
import sys
import types
from importlib import import_module

_PICTURES = "transformers.models.qwen2_vl.image_processing_qwen2_vl"
_ADDRESSES = "get_engine_zmq_addresses"


def _mend() -> None:
    pictures = types.ModuleType(_PICTURES)
    pictures.smart_resize = None  # type: ignore[attr-defined]
    sys.modules[_PICTURES] = pictures
    engines = import_module("vllm.v1.engine.utils")
    if not hasattr(engines, _ADDRESSES):
        setattr(engines, _ADDRESSES, None)


def _serve(port: str) -> None:
    words = ["-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", port]
    with subprocess.Popen([sys.executable, *words]) as front_end:
        try:
            import_module("dynamo.vllm.main").main()
        finally:
            front_end.terminate()


# vLLM's processes import this file too.
if __name__ == "__main__":
    _mend()
    _serve(sys.argv.pop(1))
