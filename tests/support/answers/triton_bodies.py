"""Bodies of Triton's inference protocol as attackers write them."""

import json
import random
import struct
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

LENGTH = "inference-header-content-length"
Sent = tuple[dict[str, str], bytes]
"""Headers and body."""

NUMBERS = (0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**30)
SCALARS: tuple[Any, ...] = (*NUMBERS, 0.5, 1e308, "", "a", "1", "a\0b", True, None, [], {}, [[]])
NOT_JSON = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b'"\\ud800"', b'"\xff"', b'"\\x"', b"01", b"[1,]",
    b"\xef\xbb\xbf1",
)  # fmt: skip
LENGTHS = (
    "+5", "5 abc", "-1", "0x10", "\uff15", "5,5", "5.0", "1e1", "9" * 5000, "99999999999", "5_0",
    "00000000005", "18446744073709551621",
)  # fmt: skip
"""Of what is no number of bytes, or of more than there are."""
FORM = 9 << 20
"""More than a thread's stack, which is 8 MiB."""


def tensor(name: str = "text_input", value: Any = "a b", **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "BYTES", "shape": [1], "data": [value]} | more


def inference(*inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    more["parameters"] = {"max_tokens": 1} | more.get("parameters", {})
    return {"inputs": list(inputs or (tensor(),)), **more}


def plain(body: Any) -> Sent:
    return {}, json.dumps(body).encode()


def with_length(length: str, data: bytes) -> Sent:
    return {LENGTH: length.encode().decode("latin-1")}, data


def binary(size: int, tail: bytes, **more: Any) -> Sent:
    """Return a tensor of so many bytes, it says, and what follows the JSON."""
    given = tensor(parameters={"binary_data_size": size}) | more
    del given["data"]
    head = json.dumps(inference(given)).encode()
    return with_length(str(len(head)), head + tail)


def element(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


def replaced(text: bytes) -> bytes:
    """Return an inference with a text in the place of its element."""
    return json.dumps(inference(tensor(value="HERE"))).encode().replace(b'"HERE"', text)


def _classified() -> Iterator[Sent]:
    for count in (0, -1, 1, 2, 100, 2**31 - 1, 2**31, "1", True, None, 1.0, [1]):
        output = {"name": "text_output", "parameters": {"classification": count}}
        yield plain(inference(outputs=[output]))
        yield plain(inference(parameters={"classification": count}))
        yield plain(inference(tensor(parameters={"classification": count})))
        yield plain({"text_input": "a", "classification": count})
        yield plain({"text_input": "a", "parameters": {"classification": count}})


def _shared() -> Iterator[Sent]:
    members = ({"shared_memory_region": "a"}, {"shared_memory_byte_size": 8},
               {"shared_memory_offset": 0}, {"shared_memory_region": "a",
               "shared_memory_byte_size": 2**63, "shared_memory_offset": 2**63})  # fmt: skip
    for each in members:
        yield plain(inference(tensor(parameters=each)))
        yield plain(inference(outputs=[{"name": "text_output", "parameters": each}]))
        yield plain(inference(parameters=each))
        yield plain({"text_input": "a", "parameters": each})


def _deep() -> Iterator[Sent]:
    for levels in (1_000, 100_000, 400_000):
        lists, objects = b"[" * levels + b"]" * levels, b'{"a":' * levels + b"1" + b"}" * levels
        for deep in (lists, objects):
            bodies = (deep, replaced(deep), b'{"text_input":"a","a":' + deep + b"}",
                      b'{"inputs":[],"parameters":{"a":' + deep + b"}}")  # fmt: skip
            for body in bodies:
                yield {}, body
                for length in ("1", str(len(body)), "+1", "1 a"):
                    yield with_length(length, body)


def _lies() -> Iterator[Sent]:
    good = element(b"a b")
    for size in (0, 1, 6, 8, 100, 2**31 - 1, 2**31, 2**32 + 7, 2**63, 2**64, -1, -7):
        yield binary(size, good)
    for shape in ([0], [2], [-1], [2**31], [2**63], [2**64], [2**32, 2**32], [], [1] * 100, [0, 1]):
        yield binary(len(good), good, shape=shape)
        yield plain(inference(tensor(shape=shape)))
    for inner in (0, 1, 4, 2**31, 2**32 - 1):
        yield binary(len(good), struct.pack("<I", inner) + good[4:])
        yield binary(len(good), struct.pack("<I", inner) + good[4:], name="request")
    yield plain(inference(tensor(parameters={"binary_data_size": 7})))
    yield plain(inference(tensor(parameters={"binary_data_size": 0})))


def _named() -> Iterator[Sent]:
    for name in ("", "none", "a\0b", "text_input\0", "a\nb", "a" * 100_000, "ü" * 300):
        yield plain(inference(tensor(), outputs=[{"name": name}]))
        yield plain(inference(tensor(name=name)))
        yield plain(inference(id=name))
        yield plain(inference(parameters={name: 1}))
        yield plain({"text_input": "a", "max_tokens": 1, name: 1, "id": name})
    yield plain(inference(tensor(), tensor()))
    yield plain(inference(*(tensor(name=f"a{n}") for n in range(20_000))))
    yield plain(inference(outputs=[{"name": f"a{n}"} for n in range(20_000)]))
    yield plain(inference(parameters={f"a{n}": n for n in range(20_000)}))
    yield {}, b'{"inputs":[],"inputs":1,"inputs":[{"name":"a"}]}'
    yield {}, b'{"text_input":"a","text_input":"b","n":1,"n":[1]}'


def _typed() -> Iterator[Sent]:
    for value in SCALARS:
        for name in ("name", "datatype", "shape", "parameters", "data"):
            yield plain(inference(tensor(**{name: value})))
            yield plain(inference(tensor(**{name: [value]})))
        for name in ("inputs", "outputs", "id", "parameters"):
            yield plain(inference() | {name: value})
            yield plain(inference() | {name: [value]})
        for name in ("sequence_id", "sequence_start", "priority", "binary_data_output"):
            yield plain(inference(parameters={name: value}))
        for kind in ("BOOL", "UINT8", "UINT64", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16"):
            yield plain(inference(tensor(value=value, datatype=kind)))
            yield plain(inference(tensor(), tensor("sampling_param_seed", value, datatype=kind)))
    for text in NOT_JSON:
        yield {}, replaced(text)
        yield {}, b'{"text_input":"a","a":' + text + b"}"


def _lengths() -> Iterator[Sent]:
    data = plain(inference())[1]
    for length in (*LENGTHS, "0", "1", str(len(data) - 1), str(len(data)), str(len(data) + 1)):
        yield with_length(length, data)


def _encodings() -> Iterator[Sent]:
    """Yield what Triton 24.10 to 26.01 reads as a number that is too large, and dies of."""
    _, data = plain(inference())
    for weight in ("1e999", "-1e999", "1e-999", "9" * 400, "nan", "inf", "0x1p9999", ""):
        for name in ("gzip", "deflate", "identity", "br", "*"):
            yield {"accept-encoding": f"{name};q={weight}"}, data
            yield {"accept-encoding": f"{name};q={weight}, gzip"}, data


def _forms() -> Iterator[Sent]:
    """Yield a body that Triton takes for a form, with copies on the stack that do not fit there."""
    _, data = plain(inference(tensor(value="a" * FORM)))
    yield {"content-type": "application/x-www-form-urlencoded"}, data
    yield {"content-type": "Application/X-WWW-Form-URLEncoded; charset=utf-8"}, data


FAMILIES = {
    "classification": _classified,
    "shared memory": _shared,
    "deep": _deep,
    "sizes": _lies,
    "names": _named,
    "types": _typed,
    "lengths": _lengths,
    "encodings": _encodings,
    "forms": _forms,
}


def mutated(chance: random.Random) -> Sent:
    """Return a good body with something else in the place of one of its values, or bytes."""
    body = deepcopy(
        inference(
            tensor(),
            tensor("stream", datatype="BOOL", value=False),
            id="1",
            parameters={"temperature": 2},
            outputs=[{"name": "text_output", "parameters": {"binary_data": True}}],
        )
    )
    place: Any = body
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        # More tokens are a long answer.
        key = chance.choice([each for each in keys if each != "max_tokens"])
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.2:
            break
        place = place[key]
    place[key] = chance.choice(SCALARS)
    if isinstance(place, dict) and chance.random() < 0.2:
        place[chance.choice(("classification", "data", "binary_data_size", "a"))] = 1
    data = bytearray(json.dumps(body).encode())
    if chance.random() < 0.2:
        data[chance.randrange(len(data))] = chance.randrange(256)
    if chance.random() < 0.2:
        return with_length(str(chance.randrange(2 * len(data))), bytes(data))
    return {}, bytes(data)
