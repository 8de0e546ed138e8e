"""What clients of Triton's HTTP port are."""

from __future__ import annotations

from typing import Final

from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.clients.spec import ClientSpec, Path
from lmi_backend.clients.triton.errors import triton_failure

_REST: Final = "/v2/{rest:path}"

SPEC: Final = ClientSpec(
    name="triton",
    title="Triton",
    order=60,
    failure=triton_failure,
    form=HttpForm,
    paths=(
        Path("/v2", "triton", "GET POST"),
        Path(_REST, "triton", "GET"),
        Path(_REST, "triton", takes_place=True, counts_n=True),
    ),
)
