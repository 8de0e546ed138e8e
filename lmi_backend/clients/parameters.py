"""From named parameters to sampling: what all wire formats share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lmi_backend.clients import values
from lmi_backend.clients.fields import CONTROLS, FIELDS, IGNORED, NEUTRAL
from lmi_backend.clients.response_formats import bare_schema, read_format
from lmi_backend.errors import RequestError
from lmi_backend.generation import Sampling
from lmi_backend.outline import LARGE, MOST_VALUES, TooMuchError, read_text

_LISTS: Final = (values.STRINGS, values.INTEGERS, values.NAMES)

Requested = dict[str, Any]
"""Target of `FIELDS` to value."""


def read_parameters(
    named: Mapping[str, object],
    *,
    dropped: list[str],
    is_text: bool = False,
    refuses_unserved: bool = False,
) -> Requested:
    """Read parameters by their names; two names of one target must agree, null is none.

    Args:
        dropped: gets the names of what is not served or not known.
        is_text: numbers and truth values may also come as strings.
        refuses_unserved: what is known and not served is an error instead.

    Raises:
        RequestError: naming the field that is wrong.
    """
    requested: Requested = {}
    winning: Requested = {}
    for name, value in named.items():
        # Clients that make their bodies from classes write null for what they do not ask.
        if value is None or name in IGNORED or name.startswith("triton_"):
            continue
        if name not in FIELDS:
            if not _asks_nothing(name, value, refuses_unserved=refuses_unserved):
                dropped.append(name)
            continue
        field = FIELDS[name]
        read = values.read_value(field.kind, name, value, is_text=is_text)
        if field.wins:
            winning[field.target] = read
        elif requested.setdefault(field.target, read) != read:
            raise RequestError("contradicts another name of the same parameter", field=name)
    return requested | winning


def _asks_nothing(name: str, value: object, *, refuses_unserved: bool) -> bool:
    accepted = NEUTRAL.get(name, ())
    if str(value) in map(str, accepted):
        return True
    if accepted and refuses_unserved:
        shown = " or ".join(dict.fromkeys(json.dumps(item) for item in accepted))
        raise RequestError("is not served", field=name, value=value, accepted=shown)
    return False


def scalars(inputs: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return inputs that stand for parameters as values: a list only where one is wanted."""
    return {
        name: value[0] if len(value) == 1 and not _is_list(name) else value
        for name, value in inputs.items()
    }


def _is_list(name: str) -> bool:
    return name in FIELDS and FIELDS[name].kind in _LISTS


def read_json(field: str, text: str) -> dict[str, Any]:
    """Read a JSON object from a tensor.

    Raises:
        RequestError: it is none, or has too much in it.
    """
    try:
        value = read_text(text)
    except TooMuchError as error:
        accepted = f"at most {MOST_VALUES} values in more than {LARGE} characters"
        raise RequestError(str(error), field=field, accepted=accepted) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"is not JSON ({error})", field=field, value=text) from error
    if not isinstance(value, dict):
        raise RequestError("is not a JSON object", field=field, value=text)
    return value


def answers_wanted(requested: Mapping[str, Any]) -> int:
    """Return how many answers to a prompt are wanted."""
    wanted: int = requested.get("n") or requested.get("best_of") or 1
    return wanted


def make_sampling(requested: Mapping[str, Any]) -> Sampling:
    """Return the Sampling of what was requested; `max_tokens` must be there.

    Raises:
        RequestError: two parameters contradict each other.
    """
    fields = {name: value for name, value in requested.items() if name not in CONTROLS}
    if "top_p" in fields and not fields["top_p"]:
        # Several clients write 0 for "not used"; as a share of probability it is the best token.
        fields |= {"top_p": 1.0, "top_k": 1}
    extra = _without_prefix(fields, "extra.")
    structure, form = _without_prefix(fields, "structure."), _formats(requested)
    if structure or form:
        if "structured_outputs" in extra or len(structure) + len(form) > 1:
            raise _twice()
        named = {"json": bare_schema(structure["json"])} if "json" in structure else {}
        extra["structured_outputs"] = structure | named | form
    if fields["max_tokens"] < fields.get("min_tokens", 0):
        accepted = f"at most max_new_tokens, {fields['max_tokens']}"
        value = fields["min_tokens"]
        raise RequestError("is too large", field="min_tokens", value=value, accepted=accepted)
    return Sampling(**fields, extra=extra)


def _without_prefix(fields: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Take the fields that start with the prefix out, and return them without it."""
    return {
        name.removeprefix(prefix): fields.pop(name)
        for name in list(fields)
        if name.startswith(prefix)
    }


def _formats(requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's `response_format` and Text Generation Inference's `grammar`, read.

    Raises:
        RequestError: both are there, and differ.
    """
    found: dict[str, Any] = {}
    for name in ("response_format", "grammar"):
        if (form := requested.get(name)) is not None:
            if found:
                raise _twice()
            found = read_format(name, form)
    return found


def _twice() -> RequestError:
    return RequestError("are requested in two ways", field="structured outputs", accepted="one way")
