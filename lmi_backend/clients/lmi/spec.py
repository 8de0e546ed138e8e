"""What LMI's clients are, with the management of DJLServing and SageMaker."""

from __future__ import annotations

from typing import Final

from lmi_backend.clients.lmi.errors import lmi_failure
from lmi_backend.clients.lmi.paths import INVOCATIONS
from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.clients.spec import INVOKE, OPERATOR, PROBE, ClientSpec, Path

_MODEL: Final = "/models/{model}"
_ADAPTERS: Final = f"{_MODEL}/adapters"
_ADAPTER: Final = f"{_ADAPTERS}/{{adapter}}"


def _body(template: str, *, by_tensor: bool = False) -> Path:
    return Path(
        template, INVOKE, takes_place=True, counts_n=True, can_resume=True, by_tensor=by_tensor
    )


SPEC: Final = ClientSpec(
    name="lmi",
    title="LMI",
    order=10,
    failure=lmi_failure,
    form=HttpForm,
    paths=(
        _body(INVOCATIONS, by_tensor=True),
        _body("/predictions/{model}"),
        _body(f"{_MODEL}/invoke"),
        Path(_ADAPTERS, "adapters", "GET"),
        Path(_ADAPTERS, "adapters", "POST", OPERATOR),
        Path(_ADAPTER, "adapters", "GET"),
        Path(_ADAPTER, "adapters", "PUT DELETE", OPERATOR),
        Path("/adapters", "adapters", "GET"),
        Path("/adapters", "adapters", "POST", OPERATOR),
        Path("/adapters/{adapter}", "adapters", "DELETE", OPERATOR),
        Path("/models", "list registered", "GET", OPERATOR),
        Path("/models", "register", "POST", OPERATOR),
        Path(_MODEL, "describe", "GET", OPERATOR),
        Path(_MODEL, "unregister", "DELETE", OPERATOR),
        Path("/ping", "ping", "GET POST", PROBE),
        Path("/health", "ping", "GET", PROBE),
        Path("/live", "live", "GET", PROBE),
    ),
)
