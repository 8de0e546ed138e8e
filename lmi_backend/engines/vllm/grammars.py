"""Structured outputs: what vLLM compiles them with, and what is tried before it does.

Some structures of a kilobyte take llguidance or outlines hours, memory without end, or their
process: vLLM 0.32 reads them on the loop that hands out all tokens, where nothing stops them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from lmi_backend.engines.vllm import compat, grammar_trial, names
from lmi_backend.errors import RequestError, UnavailableError

_log = logging.getLogger(__name__)


def choose_backend(engine: Any, tokenizer: Any) -> str:
    """Return the library that compiles all structured outputs of an engine.

    vLLM's core keeps the library of its first structured request for all later ones. With "auto"
    that request would choose for everybody, so the choice is made here, when the engine starts:
    vLLM's front process then refuses what the library lacks.
    """
    config = engine.vllm_config.structured_outputs_config
    if config.backend == "auto":
        library = "guidance" if _needs_guidance(tokenizer) else "xgrammar"
        compat.changed(config, backend=library)
        _log.info("structured outputs: %s for all requests", config.backend)
    return str(config.backend).partition(":")[0]


def _needs_guidance(tokenizer: Any) -> bool:
    """Tell whether vLLM's own tool grammars need llguidance, as those for Mistral's Tekken do."""
    supports = getattr(names.GuidanceBackend, "is_tokenizer_supported", None)
    return getattr(tokenizer, "is_tekken", False) and bool(supports and supports(tokenizer))


AT_ONCE: Final = 4
WAIT_SECONDS = 30.0
"""For a trial to begin and to end: much more than it takes, on a busy machine. Tests set it."""
_REMEMBERED: Final = 1024
_KINDS: Final = {
    "guidance": ("json", "regex", "grammar", "structural_tag"),
    "outlines": ("json", "regex"),
}
"""Libraries, and the kinds of structures for which their cost does not follow from the size."""


_pool = ThreadPoolExecutor(AT_ONCE, "lmi-grammars")


class GrammarTrials:
    """Compiles each structure once in a process of its own, and remembers whether it succeeded.

    Args:
        special: the special tokens of the model, which a grammar may name.
    """

    def __init__(self, backend: str, special: Sequence[str], tokens: int) -> None:
        self._backend, self._special, self._tokens = backend, list(special), tokens
        self._verdicts: OrderedDict[bytes, bool] = OrderedDict()

    @classmethod
    def of(cls, engine: Any, tokenizer: Any, tokens: int) -> GrammarTrials:
        special: dict[str, int] = getattr(tokenizer, "get_added_vocab", dict)()
        return cls(choose_backend(engine, tokenizer), sorted(special), tokens)

    async def check(self, params: Any) -> None:
        """Try the structure of some sampling parameters, if there is one.

        Raises:
            RequestError: it takes too long or too much memory to compile, or kills its process.
            UnavailableError: too many others are tried.
        """
        structures = getattr(params, "structured_outputs", None)
        for kind in _KINDS.get(self._backend, ()):
            if (structure := getattr(structures, kind, None)) is not None:
                await self._check(
                    kind, structure if isinstance(structure, str) else json.dumps(structure)
                )

    async def _check(self, kind: str, text: str) -> None:
        job = json.dumps(
            {
                "path": sys.path,
                "library": self._backend,
                "kind": kind,
                "text": text,
                "special": self._special,
                "tokens": self._tokens,
            }
        ).encode()
        digest = hashlib.sha256(job).digest()
        if (is_taken := self._verdicts.get(digest)) is None:
            tried = asyncio.get_running_loop().run_in_executor(_pool, _try, job)
            try:
                is_taken = await asyncio.wait_for(tried, WAIT_SECONDS)
            except (TimeoutError, asyncio.TimeoutError):
                raise UnavailableError("too many structured outputs are tried at once") from None
            self._verdicts[digest] = is_taken
            while len(self._verdicts) > _REMEMBERED:
                self._verdicts.popitem(last=False)
        if not is_taken:
            most = f"{grammar_trial.CPU_SECONDS:g} s and {grammar_trial.MEMORY_BYTES >> 20} MiB"
            problem = "takes too much time or memory to compile"
            accepted = f"at most {most}; fewer patterns or repetitions that must hold together"
            raise RequestError(problem, field=f"structured_outputs.{kind}", accepted=accepted)


def _try(job: bytes) -> bool:
    command = [sys.executable, "-I", grammar_trial.__file__]
    try:
        done = subprocess.run(  # noqa: S603
            command, input=job, capture_output=True, timeout=WAIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    if done.returncode:
        _log.warning("the trial of a structured output exited with status %s", done.returncode)
    return done.returncode == 0
