"""What AWS's libraries are, which call SageMaker's own service.

A container is called at `/invocations`; `boto3` calls `/endpoints/NAME/invocations`. Clients that
are given this server as their `endpoint_url` find here what the service would make of our answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.clients.sagemaker.errors import sagemaker_failure
from lmi_backend.clients.sagemaker.form import InvokeForm, StreamForm
from lmi_backend.clients.spec import INVOKE, ClientSpec, Path

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.clients.form import Form

_ENDPOINT: Final = "/endpoints/{endpoint}/invocations"


def _body(template: str, wrap: Callable[[Form], Form], accept: str = "accept") -> Path:
    return Path(
        template,
        INVOKE,
        takes_place=True,
        counts_n=True,
        can_resume=True,
        wrap=wrap,
        accept=accept,
    )


SPEC: Final = ClientSpec(
    name="sagemaker",
    title="SageMaker",
    order=40,
    failure=sagemaker_failure,
    form=HttpForm,
    paths=(
        _body(_ENDPOINT, InvokeForm),
        _body(f"{_ENDPOINT}-response-stream", StreamForm, "x-amzn-sagemaker-accept"),
    ),
)
