"""Try structures as the worker does; write how each ended, as JSON.

Runs in the engine's Python. Of each case standard input says which of vLLM's libraries is used, and
the structure.
"""

import asyncio
import json
import sys
from typing import Any

from vllm.sampling_params import SamplingParams

from lmi_backend.engines.vllm import grammars, names
from lmi_backend.engines.vllm.grammars import GrammarTrials

# Trials yield to all other processes, and a test must not depend on how many those are.
grammars.WAIT_SECONDS = 280


async def ended(backend: str, structure: dict[str, Any]) -> list[str]:
    """Return how a trial ended, and how it did the second time."""
    trials = GrammarTrials(backend, ["<|tool|>"], 150_000)
    params = SamplingParams(structured_outputs=names.StructuredOutputsParams(**structure))
    return [await refusal_of(trials, params), await refusal_of(trials, params)]


async def refusal_of(trials: GrammarTrials, params: Any) -> str:
    try:
        await trials.check(params)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


async def main() -> list[Any]:
    return await asyncio.gather(*(ended(*case) for case in json.load(sys.stdin)))


sys.stdout.write(json.dumps(asyncio.run(main())))
