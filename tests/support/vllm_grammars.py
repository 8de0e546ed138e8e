"""Try structures as the worker does; write how each ended and what vLLM then says, as JSON.

Runs in the engine's Python. Of each case standard input says which of vLLM's libraries is used, and
the structure.
"""

import asyncio
import json
import sys
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.structured_output import backend_guidance

from lmi_backend.engines.vllm import grammars, names
from lmi_backend.engines.vllm.grammars import GrammarTrials

# Trials yield to all other processes, and a test must not depend on how many those are.
grammars.WAIT_SECONDS = 280


def validated_again(params: Any, tokenizer: Any = None) -> None:
    """Fail where vLLM's own function is called."""
    raise AssertionError


async def ended(backend: str, structure: dict[str, Any]) -> list[str]:
    """Return how a trial ended, how it did the second time, and what vLLM's validation says."""
    trials = GrammarTrials(backend, ["<|tool|>"], 150_000)
    params = SamplingParams(structured_outputs=names.StructuredOutputsParams(**structure))
    return [
        await refusal_of(trials, params),
        await refusal_of(trials, params),
        verdict(trials, params),
    ]


async def refusal_of(trials: GrammarTrials, params: Any) -> str:
    try:
        await trials.check(params)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


def verdict(trials: GrammarTrials, params: Any) -> str:
    grammars.replace_validation(
        "validate_guidance_grammar",
        lambda own, *args, **more: trials.validate(validated_again, *args, **more),
    )
    try:
        backend_guidance.validate_guidance_grammar(params, tokenizer=None)
    except names.VLLMValidationError as error:
        return f"refused: {error}"
    except AssertionError:
        return "own"
    return ""


async def main() -> list[Any]:
    return await asyncio.gather(*(ended(*case) for case in json.load(sys.stdin)))


sys.stdout.write(json.dumps(asyncio.run(main())))
