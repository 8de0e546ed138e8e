"""Try what a client wants compiled, before vLLM compiles it in the processes that all share.

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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from lmi_backend.engines.vllm import grammar_trial
from lmi_backend.engines.vllm.inside import grammar_compat, names
from lmi_backend.errors import RequestError, UnavailableError

_log = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Trials at one time."""
WAIT_SECONDS = 30.0
"""For a trial to begin and to end: much more than it takes, on a busy machine. Tests set it."""
_REMEMBERED: Final = 1024
_TRIED: Final = frozenset({"json", "regex", "grammar", "structural_tag"})
"""Kinds of structures whose cost does not follow from their size."""
_BACKENDS: Final = frozenset({"auto", "guidance", "outlines"})
"""Of vLLM, that may compile with llguidance or outlines."""
OPTION: Final = "option.guided_decoding_backend"
_ABSENT: Final = "absent"
"""The verdict where the libraries are not there."""
_REFUSED: Final = "refused"
"""The verdict if the trial's process was killed."""


_pool = ThreadPoolExecutor(AT_ONCE, "lmi-grammars")


class GrammarTrials:
    """Compiles each structure once in a process of its own, and remembers what came of it.

    Args:
        backend: the library that compiles all structures, or vLLM's "auto".
        special: the special tokens of the model, which a grammar may name.
        tokens: how many the model has.
        bounds_tags: whether the white space of structural tags is bounded.
    """

    def __init__(
        self, backend: str, special: Sequence[str], tokens: int, *, bounds_tags: bool = False
    ) -> None:
        self._backend, self._special, self._tokens = backend, list(special), tokens
        self._bounds_tags = bounds_tags
        self._verdicts: OrderedDict[bytes, str] = OrderedDict()
        """By what was tried: empty, `_ABSENT`, `_REFUSED`, or the error of llguidance."""

    @classmethod
    def of(cls, engine: Any, tokenizer: Any, tokens: int) -> GrammarTrials:
        """Return the trials of a model, whose verdicts vLLM takes from now on."""
        special: dict[str, int] = getattr(tokenizer, "get_added_vocab", dict)()
        backend = grammar_compat.choose_backend(engine, tokenizer)
        # vLLM does so itself with llguidance.
        bounds_tags = backend == "xgrammar" and grammar_compat.writes_no_blanks(engine)
        trials = cls(backend, sorted(special), tokens, bounds_tags=bounds_tags)
        grammar_compat.replace_validation("validate_guidance_grammar", trials.validate)
        grammar_compat.replace_validation("validate_xgrammar_grammar", validate_named)
        return trials

    async def check(self, params: Any) -> None:
        """Try the structure of some sampling parameters, if there is one.

        Where the engine writes no white space, that of a structural tag is bounded.

        Raises:
            RequestError: it takes too long or too much memory to compile, or kills its process.
            UnavailableError: too many others are tried.
        """
        if self._bounds_tags:
            grammar_compat.bound_tag(params)
        kind, text = grammar_compat.structure_of(params)
        if kind not in _TRIED or self._backend not in _BACKENDS:
            return
        if (verdict := self._known(kind, text)) is None:
            job = self._job(kind, text)
            tried = asyncio.get_running_loop().run_in_executor(_pool, _try, job)
            try:
                verdict = await asyncio.wait_for(tried, WAIT_SECONDS)
            except (TimeoutError, asyncio.TimeoutError):
                raise UnavailableError("too many structured outputs are tried at once") from None
            self._remember(kind, text, verdict)
        if verdict == _REFUSED:
            most = f"{grammar_trial.CPU_SECONDS:g} s and {grammar_trial.MEMORY_BYTES >> 20} MiB"
            problem = "takes too much time or memory to compile"
            accepted = f"at most {most}; fewer patterns or repetitions that must hold together"
            raise RequestError(problem, field=f"structured_outputs.{kind}", accepted=accepted)

    def validate(self, own: Callable[..., None], params: Any, *args: Any, **kwargs: Any) -> None:
        """Stand where vLLM validates with llguidance, on its loop: it was done in the trial.

        Raises:
            VLLMValidationError: as vLLM.
        """
        kind, text = grammar_compat.structure_of(params)
        verdict = self._known(kind, text)
        if verdict is None or verdict == _ABSENT:
            validate_named(own, params, *args, **kwargs)
        elif verdict:
            raise _refusal(kind, verdict)

    def _known(self, kind: str, text: str) -> str | None:
        return self._verdicts.get(_digest(kind, text))

    def _remember(self, kind: str, text: str, verdict: str) -> None:
        self._verdicts[_digest(kind, text)] = verdict
        while len(self._verdicts) > _REMEMBERED:
            self._verdicts.popitem(last=False)

    def _job(self, kind: str, text: str) -> bytes:
        job = {
            "path": sys.path,
            "kind": kind,
            "text": text,
            "special": self._special,
            "tokens": self._tokens,
            "outlines": grammar_compat.goes_to_outlines(self._backend, kind, text),
        }
        return json.dumps(job).encode()


def validate_named(own: Callable[..., None], params: Any, *args: Any, **kwargs: Any) -> None:
    """Validate by a function of vLLM's, whose errors name no parameter and no way out.

    Raises:
        VLLMValidationError: the library does not take the structure.
    """
    kind, _ = grammar_compat.structure_of(params)  # vLLM's function may change it
    try:
        own(params, *args, **kwargs)
    except (names.VLLMClientError, ValueError) as error:
        raise _refusal(kind, str(error)) from error


def _refusal(kind: str, problem: str) -> Exception:
    error: Exception = names.VLLMValidationError(
        f"structured_outputs.{kind} is refused: {problem.rstrip('.')}; accepted: what the library "
        f"of this model compiles ({OPTION})"
    )
    return error


def _try(job: bytes) -> str:
    """Return the verdict of one trial.

    Raises:
        TimeoutError: the machine is too busy.
    """
    command = [sys.executable, "-I", grammar_trial.__file__]
    try:
        done = subprocess.run(  # noqa: S603
            command, input=job, capture_output=True, timeout=WAIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    if done.returncode:
        _log.warning("the trial of a structured output exited with status %s", done.returncode)
        return _REFUSED
    result = json.loads(done.stdout)
    if "absent" in result:
        _log.warning("structured outputs are not tried before vLLM: %s", result["absent"])
        return _ABSENT
    error: str = result["error"]
    return error


def _digest(kind: str, text: str) -> bytes:
    return hashlib.sha256(f"{kind}\n{text}".encode("utf-8", "surrogatepass")).digest()
