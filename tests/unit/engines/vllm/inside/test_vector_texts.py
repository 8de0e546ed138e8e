"""Vectors in the text that Python's own encoder writes."""

import json
import math
import random
import struct
from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from lmi_backend.engines.vllm.inside.vector_texts import as_base64, as_numbers

ODD = (
    *(0.0, -0.0, 1.0, -1.0, 1e-5, -1e-5, 1.5e-05, 0.0001, 0.00012, 9.9999e-05, 10.00001, -0.00001),
    *(100.0000001, 1e15, 1e16, 1e17, 123456789012345678.0, 1e22, 5e-324, 1.7e308, 1e-7, 1e-300),
)


def vector(values: Any) -> Any:
    return SimpleNamespace(tolist=lambda: list(values))


def theirs(values: Any) -> bytes:
    return json.dumps(list(values), separators=(",", ":")).encode()


def test_odd_numbers() -> None:
    for each in ODD:
        assert as_numbers(vector([each])) == theirs([each])
    assert as_numbers(vector(ODD)) == theirs(ODD)
    assert as_numbers(vector([])) == b"[]"


@pytest.mark.parametrize("form", ["<f", "<d"])
def test_any_numbers(form: str) -> None:
    dice = random.Random(form)
    size = struct.calcsize(form)
    for _ in range(200):
        values = [struct.unpack(form, dice.randbytes(size))[0] for _ in range(100)]
        values = [each for each in values if math.isfinite(each)]
        assert as_numbers(vector(values)) == theirs(values)
        small = [dice.gauss(0, 10.0 ** dice.randrange(-8, 3)) for _ in range(100)]
        assert as_numbers(vector(small)) == theirs(small)


@pytest.mark.parametrize("other", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_has_no_text(other: float) -> None:
    with pytest.raises(ValueError, match="no number"):
        as_numbers(vector([1.0, other]))


def test_bytes() -> None:
    values = numpy.array([0.5, -3.25], dtype=numpy.float32)
    assert as_base64(SimpleNamespace(numpy=lambda: values)) == b'"%s"' % b64encode(values.tobytes())
