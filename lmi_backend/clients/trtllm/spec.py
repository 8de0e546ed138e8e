"""What clients of Triton's TensorRT-LLM backend are: they send tensors, and have no paths."""

from __future__ import annotations

from typing import Final

from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.clients.spec import ClientSpec
from lmi_backend.clients.triton.errors import triton_failure

SPEC: Final = ClientSpec(
    name="trtllm",
    title="Triton's TensorRT-LLM backend",
    order=71,
    failure=triton_failure,
    form=HttpForm,
    paths=(),
)
