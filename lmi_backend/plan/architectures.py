"""Whether the installed engine has code for a model's architecture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lmi_backend.options.signature import locate
from lmi_backend.options.table import common as opt

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lmi_backend.options import LmiOptions
    from lmi_backend.options.signature import Signature

# What names of architectures have at their ends. An engine converts one kind into another.
_TASK: Final = re.compile(r"(?:Model)?For(?=[A-Z])")
_KIND: Final = re.compile(r"(?:(?:Chat|LMHead|Embedding|Reward)?Model|Speculator)$")
_BY_USER: Final = frozenset({"model_impl", "hf_overrides", "model_class_overrides"})


def served_as(names: Sequence[str], known: Signature | None) -> str:
    """Return the architecture that an engine takes of several, as vLLM does; empty for none."""
    has_code = (name for name in names if known and name in known.models)
    return next(has_code, names[0] if names else "")


def has_no_code(options: LmiOptions, known: Signature, names: Collection[str], python: str) -> bool:
    """Tell whether neither the engine nor its Transformers library can have code for a model.

    Where it is not sure, the load decides: with plugins, code of the model's own, and names that
    begin as a known one does.

    Args:
        names: the model's architectures; code for one is enough.
    """
    is_open = options[opt.TRUST_REMOTE_CODE] or not _BY_USER.isdisjoint(options.passthrough)
    if is_open or known.plugins or known.is_recorded or not known.models or not names:
        return False
    return all(_is_unknown(options, known, name, python) for name in names)


def _is_unknown(options: LmiOptions, known: Signature, name: str, python: str) -> bool:
    begin = _KIND.sub("", _TASK.split(name, maxsplit=1)[0])
    if begin == name or any(each.startswith(begin) for each in known.models):
        return False
    source = options.choice.spec.implementation.source
    library, pattern = source.other_models if source else ("", "")
    files = [file for folder in locate(library, python) for file in folder.glob(pattern)]
    class_ = f"class {name}(".encode()
    return bool(files) and not any(class_ in file.read_bytes() for file in files)
