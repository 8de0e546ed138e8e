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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from lmi_backend.engines.vllm import grammar_trial, names
from lmi_backend.errors import RequestError, UnavailableError

_log = logging.getLogger(__name__)


# `disable_any_whitespace` of vLLM 0.32 holds for schemas only. A small model writes white space
# without end in a structural tag, such as vLLM makes for the strict tools of a chat, until its
# tokens are used up.

_MOST: Final = 1
"""White space between two tokens of JSON; xgrammar takes no 0."""
_BOUND: Final = "max_whitespace_cnt"
_SCHEMA: Final = "json_schema"


def bounded(text: str) -> str:
    """Return a structural tag whose JSON has no runs of white space.

    What is no tag that xgrammar reads is returned as it is: vLLM says what is wrong with it.
    """
    try:
        tag = json.loads(text)
        if "structures" in tag:
            tag = _newer(tag)
        _bound(tag["format"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return text
    return json.dumps(tag)


def _newer(tag: dict[str, Any]) -> dict[str, Any]:
    """Return a tag of the older format, which has no such bound, in the newer one."""
    tags = [
        {
            "type": "tag",
            "begin": each["begin"],
            "content": {"type": _SCHEMA, _SCHEMA: each["schema"]},
            "end": each["end"],
        }
        for each in tag["structures"]
    ]
    triggered = {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}
    return {"type": "structural_tag", "format": triggered}


def _bound(part: Any) -> None:
    if isinstance(part, list):
        for each in part:
            _bound(each)
    elif isinstance(part, dict) and part.get("type") == _SCHEMA:
        if part.get(_BOUND) is None:
            part[_BOUND] = _MOST
    elif isinstance(part, dict):
        _bound(list(part.values()))


AUTO: Final = "auto"
"""vLLM's value for a choice at each request."""


def choose_backend(engine: Any, tokenizer: Any) -> str:
    """Return the library that compiles all structured outputs of an engine.

    vLLM's core keeps the library of its first structured request for all later ones. With "auto"
    that request would choose for everybody, so the choice is made here, when the engine starts:
    vLLM's front process then refuses what the library lacks. `AUTO` where vLLM does not allow it.
    """
    config = _structures_config(engine.vllm_config)
    given = getattr(config, "backend", None)
    if given is not None and given != AUTO:
        return str(given).partition(":")[0]
    chosen = "guidance" if _needs_guidance(tokenizer) else "xgrammar"
    found = "no backend in its config"
    if given is not None:
        try:
            config.backend = chosen
        except (AttributeError, TypeError, ValueError) as error:
            found = str(error)
        else:
            _log.info("structured outputs: %s for all requests", chosen)
            return chosen
    problem = "the first structured request chooses the library of all later ones"
    _log.warning("vLLM keeps its own choice for structured outputs, %s: %s", problem, found)
    return AUTO


def writes_no_blanks(engine: Any) -> bool:
    """Tell whether the user wants structured answers without white space."""
    config = _structures_config(engine.vllm_config)
    return bool(getattr(config, "disable_any_whitespace", False))


def bound_tag(params: Any) -> None:
    """Bound the white space of the structural tag in sampling parameters."""
    structures: Any = getattr(params, "structured_outputs", None)
    if isinstance(text := getattr(structures, "structural_tag", None), str):
        structures.structural_tag = bounded(text)


def _structures_config(config: Any) -> Any:
    return getattr(config, "structured_outputs_config", None) or getattr(
        config, "decoding_config", None
    )  # renamed in 0.11


def _needs_guidance(tokenizer: Any) -> bool:
    """Tell whether vLLM's own tool grammars need llguidance, as those for Mistral's Tekken do."""
    if not getattr(tokenizer, "is_tekken", False):
        return False
    supports = getattr(names.GuidanceBackend, "is_tokenizer_supported", None)
    return bool(supports and supports(tokenizer))


def structure_of(params: Any) -> tuple[str, str]:
    """Return the kind of the structure in some sampling parameters, and its text.

    Both are empty if there is none, or none that vLLM can read.
    """
    for name in ("structured_outputs", "guided_decoding"):  # renamed in 0.12
        if (structures := getattr(params, name, None)) is not None:
            break
    else:
        return "", ""
    try:
        kind, text = names.get_structured_output_key(structures)
    except AttributeError:  # 0.11.0 takes all parameters
        kind, text = names.get_structured_output_key(params)
    except (TypeError, ValueError):
        return "", ""
    return kind.name.lower(), str(text)


def goes_to_outlines(backend: str, kind: str, text: str) -> bool:
    """Tell whether vLLM may compile a structure with outlines.

    In "auto" those are schemas with a member that llguidance has not, and that xgrammar refuses.
    """
    if backend == "outlines":
        return kind in ("json", "regex")
    try:
        if (
            backend != AUTO
            or kind != "json"
            or not names.has_guidance_unsupported_json_features(json.loads(text))
        ):
            return False
        params = names.SamplingParams(structured_outputs=names.StructuredOutputsParams(json=text))
        names.validate_xgrammar_grammar(params)
    except (names.VLLMClientError, ValueError):
        return True
    return False


def replace_validation(name: str, validate: Callable[..., None]) -> None:
    """Replace a function of vLLM's that validates structures.

    Releases import it by name into the module that calls it, or call it where it is defined.

    Args:
        name: of the function, as in `names`.
        validate: gets vLLM's own function before its arguments.
    """
    own = getattr(names, name)
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("vllm."):
            continue
        if getattr(module, "__dict__", {}).get(name) is not None:
            setattr(module, name, partial(validate, own))


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
        backend = choose_backend(engine, tokenizer)
        # vLLM does so itself with llguidance.
        bounds_tags = backend == "xgrammar" and writes_no_blanks(engine)
        trials = cls(backend, sorted(special), tokens, bounds_tags=bounds_tags)
        replace_validation("validate_guidance_grammar", trials.validate)
        replace_validation("validate_xgrammar_grammar", validate_named)
        return trials

    async def check(self, params: Any) -> None:
        """Try the structure of some sampling parameters, if there is one.

        Where the engine writes no white space, that of a structural tag is bounded.

        Raises:
            RequestError: it takes too long or too much memory to compile, or kills its process.
            UnavailableError: too many others are tried.
        """
        if self._bounds_tags:
            bound_tag(params)
        kind, text = structure_of(params)
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
        kind, text = structure_of(params)
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
            "outlines": goes_to_outlines(self._backend, kind, text),
        }
        return json.dumps(job).encode()


def validate_named(own: Callable[..., None], params: Any, *args: Any, **kwargs: Any) -> None:
    """Validate by a function of vLLM's, whose errors name no parameter and no way out.

    Raises:
        VLLMValidationError: the library does not take the structure.
    """
    kind, _ = structure_of(params)  # vLLM's function may change it
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
