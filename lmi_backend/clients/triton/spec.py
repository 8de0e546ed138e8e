"""What clients of Triton's HTTP port are."""

from __future__ import annotations

from typing import Final

from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.clients.spec import PROBE, ClientSpec, Path
from lmi_backend.clients.triton.errors import triton_failure

_REST: Final = "/v2/{rest:path}"
_MODEL: Final = "/v2/models/{model}"
_READY: Final = ("/v2/health/ready", f"{_MODEL}/ready", f"{_MODEL}/versions/{{version}}/ready")

SPEC: Final = ClientSpec(
    name="triton",
    title="Triton",
    order=60,
    failure=triton_failure,
    form=HttpForm,
    paths=(
        Path("/v2", "triton", "GET POST"),
        Path("/v2/health/live", "triton", "GET", PROBE),
        *(Path(each, "triton ready", "GET", PROBE) for each in _READY),
        Path(_REST, "triton", "GET"),
        Path(_REST, "triton", takes_place=True, counts_n=True),
    ),
)
