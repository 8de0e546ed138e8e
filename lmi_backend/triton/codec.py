"""Tensors to Python values and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import triton_python_backend_utils as pb_utils

from lmi_backend.errors import LmiError, RequestError

if TYPE_CHECKING:
    from lmi_backend.clients.spec import Output, Response
    from lmi_backend.repository.tensors import Tensor
    from lmi_backend.repository.variants import Variant

_NUMPY: Final = {
    "TYPE_STRING": np.object_,
    "TYPE_BOOL": np.bool_,
    "TYPE_INT32": np.int32,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_FP32": np.float32,
}

Row = dict[str, list[Any]]


class Codec:
    def __init__(self, variant: Variant) -> None:
        self._is_batched = variant.max_batch_size > 0
        self.joins = self._is_batched and not variant.is_decoupled
        """Whether several responses become one, a row of the batch each."""
        self._strings = frozenset(t.name for t in variant.inputs if t.data_type == "TYPE_STRING")
        self._outputs = {
            t.name: (_NUMPY[t.data_type], _leading(t, is_batched=self._is_batched))
            for t in variant.outputs
        }
        """Type, and the lengths of all dimensions but the last."""

    def read_inputs(self, request: Any) -> list[Row]:
        """Return the values of each input that was sent, flat, for each row of the batch.

        Raises:
            RequestError: a string is not UTF-8.
        """
        rows: list[Row] = []
        for tensor in request.inputs():
            array = tensor.as_numpy()
            batch = list(array) if self._is_batched else [array]
            rows += ({} for _ in range(len(batch) - len(rows)))
            for row, values in zip(rows, batch, strict=False):
                row[tensor.name()] = self._values(tensor.name(), values)
        return rows or [{}]

    def requested_outputs(self, request: Any) -> frozenset[str]:
        names = frozenset(request.requested_output_names())
        return names if len(names) < len(self._outputs) else frozenset()

    def response(self, values: Response) -> Any:
        """Return a response; outputs this variant does not have are left out."""
        return pb_utils.InferenceResponse(
            output_tensors=[
                self._tensor(name, value) for name, value in values.items() if name in self._outputs
            ]
        )

    def one_response(self, responses: list[Response]) -> Any:
        """Return the responses of a batch, in their order, as one of all its rows.

        Outputs that differ in length are filled up, as TensorRT-LLM's are: ids with -1.
        """
        rows = 1 + max(int(cast("int", values.get("batch_index", 0))) for values in responses)
        return pb_utils.InferenceResponse(
            output_tensors=[
                self._rows(name, [values[name] for values in responses], rows)
                for name in responses[0]
                if name in self._outputs and name != "sequence_index"
            ]
        )

    def _rows(self, name: str, values: list[Output], rows: int) -> Any:
        kind, leading = self._outputs[name]
        if kind is np.object_:
            return pb_utils.Tensor(name, np.array([_wire(v) for v in values], dtype=kind))
        if name == "batch_index":
            return pb_utils.Tensor(name, np.arange(rows, dtype=kind).reshape(rows, 1))
        lists = [value if isinstance(value, list) else [value] for value in values]
        longest = max(len(items) for items in lists)
        array = np.full((len(lists), longest), -1 if name == "output_ids" else 0, dtype=kind)
        for row, items in zip(array, lists, strict=True):
            row[: len(items)] = items
        shapes = {1: (-1,), 2: (rows, -1), 3: (rows, -1, longest)}
        return pb_utils.Tensor(name, array.reshape(shapes[1 + len(leading)]))

    def _values(self, name: str, array: Any) -> list[Any]:
        values: list[Any] = array.ravel().tolist()
        return [_text(name, value) for value in values] if name in self._strings else values

    def _tensor(self, name: str, value: Output) -> Any:
        kind, leading = self._outputs[name]
        items = value if isinstance(value, list) else [value]
        array = np.array([_wire(i) for i in items] if kind is np.object_ else items, dtype=kind)
        if leading:
            array = array.reshape((*leading, -1))
        return pb_utils.Tensor(name, array)


def _leading(tensor: Tensor, *, is_batched: bool) -> tuple[int, ...]:
    """Return the lengths of the dimensions before the last, of one row with one answer."""
    batch = (1,) if is_batched and tensor.is_batched else ()
    return (*batch, *(abs(length) for length in tensor.shape[:-1]))


def error_response(error: LmiError) -> Any:
    """Return a response. In /generate and gRPC's streams Triton drops its code, not its text."""
    code, text = getattr(pb_utils.TritonError, error.code), str(error)
    # A body has its code inside.
    if error.code != RequestError.code and not text.startswith("{"):
        text = f"{error.code}: {text}"
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))


def _text(name: str, value: bytes | str) -> str:
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 (byte {error.start})"
        raise RequestError(problem, field=name, value=value[:40]) from error


def _wire(value: Any) -> bytes:
    # A generated text may hold half of a surrogate pair; "replace" keeps the response valid.
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
