"""By how much an estimate may be off, on each side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.draft import COMPUTED
from lmi_backend.sizing.libraries import INSTINCT_GRAPHS, graph_bytes
from lmi_backend.sizing.step import GRAPHS_DEDUCTED, HOPPER, deducts_graphs
from lmi_backend.units import GIB

if TYPE_CHECKING:
    from lmi_backend.sizing.model_facts import ModelFacts
    from lmi_backend.sizing.step import Release, Step

_PLAIN_SHARE: Final = 0.01
_QUANTISED_SHARE: Final = 0.05
"""Of computed weights: which modules are left out of a quantisation is not always written."""
_UNKNOWN_SHARE: Final = 0.1
"""The same of a class that is not known here."""
_LOGGED: Final = int(0.15 * GIB)
"""Where many logs of the same kind of device and release are known."""
_UNLOGGED: Final = GIB
_ACTIVATION_SHARE: Final = 0.35
_ENCODER_TOKENS: Final = 65536
"""Parts of an image in an encoder's trial run, at most."""
_ENCODER_WIDTHS: Final = 12
_TOWER: Final = 1152
"""The usual width of an encoder of images."""
_TRANSIENTS: Final[Release] = (0, 26)
"""From here on vLLM counts a trial run of gated delta nets among its graphs (vllm#50780)."""
_LARGE_BLACKWELL: Final[range] = range(100, 110)
_LARGE_GRAPHS: Final = 7 * GIB
"""B200 and its like: two graphs of a kind are measured and multiplied (vllm#45178)."""
_LOGGED_DEVICES: Final[range] = range(HOPPER, 100)
_LAST_LOGGED: Final[Release] = GRAPHS_DEDUCTED


def uncertainty(
    facts: ModelFacts, step: Step, weights: int, taken: tuple[int, int]
) -> tuple[int, int]:
    """Return the bytes by which the cache may be smaller and larger than estimated.

    Args:
        facts: the model.
        step: what is tried, and on what.
        weights: their bytes on the device.
        taken: bytes of the activations and of the graphs.
    """
    share = 0.0
    if facts.weight_source == COMPUTED:
        is_plain = not facts.quantization and not facts.vision_parameters
        share = _PLAIN_SHARE if is_plain else _QUANTISED_SHARE
        share = _UNKNOWN_SHARE if facts.unknown_class else share
    found = int(weights * share)
    is_logged = step.release < _LAST_LOGGED and step.capability in _LOGGED_DEVICES
    is_usual = not facts.states.layers and not facts.vision_parameters and not step.is_instinct
    if is_logged and is_usual:
        return found + _LOGGED, found + _LOGGED
    activations, graphs = taken
    found += _UNLOGGED + int(_ACTIVATION_SHARE * activations) + graphs // 2
    encoder = _ENCODER_TOKENS * _ENCODER_WIDTHS * _TOWER * 2 if facts.vision_parameters else 0
    kept = 0 if deducts_graphs(facts, step) else graphs - graphs // 2
    lacking = 0 if graphs else _maybe_deducted(facts, step)
    if step.is_instinct:
        # One model's logs say what the libraries and the graphs take there.
        found += INSTINCT_GRAPHS
    return found + encoder + lacking + _estimated(facts, step, taken), found + kept


def _maybe_deducted(facts: ModelFacts, step: Step) -> int:
    """Return what may be missing where the second runner deducts no graphs: a first compilation."""
    if step.release < GRAPHS_DEDUCTED or deducts_graphs(facts, step):
        return 0
    return graph_bytes(facts, step, layers=facts.num_layers)


def _estimated(facts: ModelFacts, step: Step, taken: tuple[int, int]) -> int:
    """Return by how much more vLLM's own estimate of its graphs may be than they take."""
    activations, graphs = taken
    if not graphs:
        return 0
    found = graphs if facts.drafted_tokens else 0
    if facts.states.delta is not None and step.release >= _TRANSIENTS:
        found += activations
    return found + (_LARGE_GRAPHS if step.capability in _LARGE_BLACKWELL else 0)
