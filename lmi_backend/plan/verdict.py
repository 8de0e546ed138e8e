"""What becomes of a key: the table decides, then the engine's signature, then the neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.options.option import PREFIX, Status, adapter_of
from lmi_backend.options.resolve import closest
from lmi_backend.options.table import KEYS, find_option
from lmi_backend.plan.signature import recorded_signature

if TYPE_CHECKING:
    from lmi_backend.plan.signature import Signature

# An engine is chosen by name; this is how.
_TO_CHOOSE = {
    "vllm": "option.rolling_batch=vllm",
    "lmi-dist": "option.rolling_batch=lmi-dist",
    "trtllm": "option.rolling_batch=trtllm, or SERVING_FEATURES=trtllm",
    "transformers": "option.rolling_batch=disable",
    "deepspeed": "option.rolling_batch=deepspeed",
    "neuronx": "option.rolling_batch=tnx",
}


def status_of(key: str, engine: str, signature: Signature | None) -> Status:
    """Return the status of a key under an engine whose arguments are these, if they are known."""
    option = find_option(key, engine)
    if option is not None:
        return option.status_under(engine)
    name = key.removeprefix(PREFIX)
    adapter = adapter_of(engine)
    if signature is not None and name in signature.arguments:
        return Status("passed", f"{adapter} {name}")
    if other := _owner(key, name):
        detail = f"it is an option of {other}, and this model runs on {engine}"
        return Status("ignored", f"{detail} ({_TO_CHOOSE[other]} chooses {other})")
    if engine == "echo" or _may_be_newer(key, signature):
        return Status("passed", f"{adapter} {name}, which {adapter} itself has to accept")
    return Status("refused", _unknown(key, adapter, signature))


def _owner(key: str, name: str) -> str:
    """Return another engine that knows the key, or nothing."""
    if rows := KEYS.get(key):
        return rows[0].engines[0]
    for engine in ("vllm", "trtllm"):
        record = recorded_signature(engine)
        if record and name in record.arguments:
            return engine
    return ""


def _may_be_newer(key: str, signature: Signature | None) -> bool:
    """Tell whether a release that we have not seen may have it: it is like nothing we know.

    Only where no engine is installed that could be asked.
    """
    return (
        signature is not None and signature.is_recorded and not closest(key, _known_keys(signature))
    )


def _unknown(key: str, adapter: str, signature: Signature | None) -> str:
    hint = closest(key, _known_keys(signature))
    if signature is None:
        return f"is not an option of LMI for {adapter}{hint}"
    return f"is neither an option of LMI nor an argument of {adapter} {signature.version}{hint}"


def _known_keys(signature: Signature | None) -> list[str]:
    arguments = signature.arguments if signature else ()
    return [*KEYS, *(PREFIX + name for name in arguments)]
