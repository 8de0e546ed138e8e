"""From rank 0 to all ranks: commands with their arguments, over a gloo group."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
import torch
from torch import distributed

from lmi_backend.engines.vllm.inside import names

_LIMIT: Final = timedelta(days=1)
_SMALL: Final = 1024
"""Bytes that travel with the length, in one broadcast; most steps have no command."""
_LENGTH: Final = 8
_TYPES: Final = {"add_request": "EngineCoreRequest", "add_lora": "LoRARequest"}
"""Commands with an argument that is one of vLLM's structs; the others have plain values."""

Commands = list[tuple[str, "Sequence[Any]"]]


class Broadcast:
    """One group of all ranks; every rank makes it at the same point."""

    def __init__(self) -> None:
        self._group = distributed.new_group(backend="gloo", timeout=_LIMIT)
        self._encoder = names.MsgpackEncoder()
        self._decoders = {
            method: names.MsgpackDecoder(getattr(names, name)) for method, name in _TYPES.items()
        }
        self._plain = names.MsgpackDecoder()

    def send(self, commands: Commands) -> None:
        """Send from rank 0."""
        frame = msgspec.msgpack.encode(
            [(method, self._pack(method, arguments)) for method, arguments in commands]
        )
        small = len(frame) <= _SMALL
        first = len(frame).to_bytes(_LENGTH, "little") + (frame if small else b"")
        self._move(bytearray(first.ljust(_LENGTH + _SMALL, b"\0")))
        if not small:
            self._move(bytearray(frame))

    def receive(self) -> Commands:
        """Wait for what rank 0 sends."""
        first = self._move(bytearray(_LENGTH + _SMALL))
        length = int.from_bytes(first[:_LENGTH], "little")
        frame = first[_LENGTH:] if length <= _SMALL else self._move(bytearray(length))
        commands = msgspec.msgpack.decode(bytes(frame[:length]))
        return [(method, self._unpack(method, buffers)) for method, buffers in commands]

    def _move(self, data: bytearray) -> bytearray:
        tensor = torch.frombuffer(data, dtype=torch.uint8)  # [bytes]; shares their memory
        distributed.broadcast(tensor, 0, group=self._group)
        return data

    def _pack(self, method: str, arguments: Sequence[Any]) -> list[bytes]:
        value = arguments[0] if method in _TYPES else list(arguments)
        return [bytes(buffer) for buffer in self._encoder.encode(value)]

    def _unpack(self, method: str, buffers: list[bytes]) -> Sequence[Any]:
        if method in _TYPES:
            return [self._decoders[method].decode(buffers)]
        arguments: list[Any] = self._plain.decode(buffers)
        return arguments
