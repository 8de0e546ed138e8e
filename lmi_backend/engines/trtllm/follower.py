"""The TensorRT-LLM ranks after the first: they run what rank 0's LLM sends them."""

from __future__ import annotations

import threading

from lmi_backend.engines.follower import Follower
from lmi_backend.engines.trtllm import compat
from lmi_backend.ipc.engine import Capabilities


class TrtllmFollower(Follower):
    """One worker of the library."""

    async def start(self) -> Capabilities:
        """See `Rank`. The model is loaded by the work that rank 0 sends."""
        threading.Thread(target=compat.follow, name="lmi-follow", daemon=True).start()
        return Capabilities("trtllm", compat.trtllm_version, 0)
