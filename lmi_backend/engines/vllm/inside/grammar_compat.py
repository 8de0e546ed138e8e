"""What vLLM compiles structured outputs with."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from lmi_backend.engines.vllm.inside import names
from lmi_backend.engines.vllm.structural_tags import bounded

_log = logging.getLogger(__name__)

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
