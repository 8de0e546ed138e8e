"""Our own engine for dry runs: it repeats the prompt. It judges its few options itself."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.spec import EngineSpec, Implementation

SPEC: Final = EngineSpec(
    name="echo",
    title="Echo",
    order=7,
    implementation=Implementation(
        name="echo",
        title="Echo",
        engine="lmi_backend.engines.echo:EchoEngine",
        follower="lmi_backend.engines.echo:EchoFollower",
        image="vllm",
        running="max_running",
        takes_degrees=False,
        takes_memory=False,
        needs_model=False,
        takes_any_option=True,
    ),
    rolling_batch="echo",
    unused={"option.model_id": "it needs no model"},
)
