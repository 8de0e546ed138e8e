"""A host of Triton's models in its own process, as `python -m dynamo.triton` of NVIDIA's Dynamo is.

python -m tests.support.servers.in_process_host LIBRARY BACKENDS REPOSITORY

It loads all models. Each line that it reads is JSON: a model's name, and its tensors of text. Each
line that it writes is a list: the outputs of each response, or an error. As Dynamo 1.6, it sends
tensors alone: no parameters, no id, and it cancels nothing. Dynamo has Triton's Python bindings,
which are on no index; they call the same API of C (tritonserver.h) as this.
"""

import json
import struct
import sys
import threading
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    addressof,
    byref,
    c_bool,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
    create_string_buffer,
    string_at,
)  # fmt: skip
from typing import Any

BYTES, CPU, FINAL = 13, 0, 1
_ALLOCATE = CFUNCTYPE(
    c_void_p, c_void_p, c_char_p, c_size_t, c_int, c_int64, c_void_p, POINTER(c_void_p),
    POINTER(c_void_p), POINTER(c_int), POINTER(c_int64),
)  # fmt: skip
_FREE = CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int64)
_CALLBACK = CFUNCTYPE(None, c_void_p, c_uint32, c_void_p)


class Host:
    """A server of Triton's without any port."""

    def __init__(self, library: str, backends: str, repository: str) -> None:
        self._library = CDLL(library)
        self._library.TRITONSERVER_ErrorMessage.restype = c_char_p
        self._library.TRITONSERVER_ErrorMessage.argtypes = [c_void_p]
        self._library.TRITONSERVER_InferenceResponseError.restype = c_void_p
        self._buffers: dict[int, Any] = {}
        # ctypes frees what nobody holds, and Triton calls it later.
        self._allocate, self._free = _ALLOCATE(self._new_buffer), _FREE(self._old_buffer)
        self._release = _CALLBACK(lambda request, *_: self._do("InferenceRequestDelete", request))
        options, self._server, self._allocator = c_void_p(), c_void_p(), c_void_p()
        self._do("ServerOptionsNew", byref(options))
        self._do("ServerOptionsSetModelRepositoryPath", options, repository.encode())
        self._do("ServerOptionsSetBackendDirectory", options, backends.encode())
        self._do("ServerOptionsSetGpuMetrics", options, c_bool(False))
        self._do("ServerOptionsSetExitTimeout", options, c_uint(30))
        self._do("ServerNew", byref(self._server), options)
        allocators = byref(self._allocator), self._allocate, self._free, None
        self._do("ResponseAllocatorNew", *allocators)

    def _do(self, function: str, *arguments: Any) -> None:
        call = getattr(self._library, f"TRITONSERVER_{function}")
        call.restype = c_void_p
        found = [c_void_p(each) if type(each) is int else each for each in arguments]
        if error := call(*found):
            raise RuntimeError(self._library.TRITONSERVER_ErrorMessage(error).decode())

    def _new_buffer(self, *arguments: Any) -> None:
        size, place = arguments[2], arguments[6]
        buffer = create_string_buffer(max(size, 1))
        self._buffers[addressof(buffer)] = buffer
        place[0] = addressof(buffer)
        for where in arguments[7:]:
            where[0] = 0

    def _old_buffer(self, *arguments: Any) -> None:
        self._buffers.pop(arguments[1], None)

    def infer(self, model: str, tensors: dict[str, str]) -> list[Any]:
        """Return the outputs of each response, or its error."""
        request, held = c_void_p(), []
        self._do("InferenceRequestNew", byref(request), self._server, model.encode(), c_int64(-1))
        for name, text in tensors.items():
            data = struct.pack("<I", len(text.encode())) + text.encode()
            held.append(create_string_buffer(data, len(data)))
            shape = (c_int64 * 1)(1)
            self._do(
                "InferenceRequestAddInput", request, name.encode(), c_int(BYTES), shape, c_uint64(1)
            )
            place = held[-1], c_size_t(len(data)), c_int(CPU), c_int64(0)
            self._do("InferenceRequestAppendInputData", request, name.encode(), *place)
        responses: list[Any] = []
        is_over = threading.Event()

        def take(response: int | None, flags: int, _: Any) -> None:
            if response:
                responses.append(self._outputs(response))
                self._do("InferenceResponseDelete", response)
            if flags & FINAL:
                is_over.set()

        taken = _CALLBACK(take)
        self._do("InferenceRequestSetReleaseCallback", request, self._release, None)
        arguments = request, self._allocator, None, taken, None
        self._do("InferenceRequestSetResponseCallback", *arguments)
        self._do("ServerInferAsync", self._server, request, None)
        is_over.wait()
        return responses

    def _outputs(self, response: int) -> Any:
        if error := self._library.TRITONSERVER_InferenceResponseError(c_void_p(response)):
            return self._library.TRITONSERVER_ErrorMessage(error).decode()
        count, outputs = c_uint32(), {}
        self._do("InferenceResponseOutputCount", response, byref(count))
        for index in range(count.value):
            name, kind, shape, dims = c_char_p(), c_int(), POINTER(c_int64)(), c_uint64()
            base, size, memory, number, user = (
                c_void_p(), c_size_t(), c_int(), c_int64(), c_void_p()
            )  # fmt: skip
            places = map(byref, (name, kind, shape, dims, base, size, memory, number, user))
            self._do("InferenceResponseOutput", response, c_uint32(index), *places)
            data = string_at(base.value, size.value) if base.value else b""
            outputs[(name.value or b"").decode()] = data[4:].decode("utf-8", "replace")
        return outputs

    def close(self) -> None:
        self._do("ServerStop", self._server)
        self._do("ServerDelete", self._server)


def main() -> None:
    host = Host(*sys.argv[1:])
    sys.stdout.write("[]\n")
    for line in sys.stdin:
        sys.stdout.flush()
        sys.stdout.write(json.dumps(host.infer(*json.loads(line))) + "\n")
    host.close()


if __name__ == "__main__":
    main()
