"""The Triton models one LMI model can be met under.

Triton checks shapes and modes for each model, so one model cannot serve every client: a tensor has
a batch dimension or not, answers stream or not. The first variant holds the workers. The others are
alias models: thin ones that share its workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from lmi_backend.repository.tensors import (
    INFER_INPUTS,
    INPUTS,
    OUTPUTS,
    POSTPROCESSING_INPUTS,
    POSTPROCESSING_OUTPUTS,
    PREPROCESSING_INPUTS,
    PREPROCESSING_OUTPUTS,
    REQUEST,
    RESPONSE,
    TRTLLM_INPUTS,
    TRTLLM_OUTPUTS,
    Tensor,
)

SHARES: Final = "shares"
"""Parameter of an alias model: the model whose workers it uses."""
CLIENTS: Final = "clients"
"""Parameter of an alias model: for whose clients it is, a key of `VARIANTS`."""

Step = Literal["", "preprocessing", "postprocessing"]

_ENSEMBLE: Final = "ensemble"
_ENSEMBLE_INPUTS: Final = tuple(
    replace(each, data_type="TYPE_UINT32") if each.name == "request_output_len" else each
    for each in TRTLLM_INPUTS
)
"""Who names that length to an ensemble is LlamaIndex, which stops requests with it.

It sends it as the first releases of TensorRT-LLM's backend had it; clients of the core model,
which is not called so, send TYPE_INT32. Triton refuses any type but that of the configuration.
"""


@dataclass(frozen=True)
class Variant:
    """One kind of a model."""

    clients: str
    help: str
    inputs: tuple[Tensor, ...] = INPUTS
    outputs: tuple[Tensor, ...] = OUTPUTS
    max_batch_size: int = 0
    """0: tensors have no batch dimension."""
    is_decoupled: bool = True
    """Whether a request may get any number of responses; if not it gets exactly one."""
    is_trtllm: bool = False
    """Whether every request is read as TensorRT-LLM's backend does; only there `stop` cancels
    one."""
    step: Step = ""
    """What it does of what an ensemble of that backend does; nothing generates then."""

    def model_name(self, name: str) -> str:
        """Return what Triton calls this variant of the model `name`, if nobody chose a name."""
        return name if self is MAIN else f"{name}_{self.clients}"

    def of_model(self, name: str) -> Variant:
        is_ensemble = self.is_trtllm and name == _ENSEMBLE
        return replace(self, inputs=_ENSEMBLE_INPUTS) if is_ensemble else self


MAIN: Final = Variant(
    "vllm", "LMI, vllm-backend and OpenAI bodies, streamed or not; holds the workers"
)
VARIANTS: Final = {
    variant.clients: variant
    for variant in (
        MAIN,
        Variant(
            "trtllm",
            "TensorRT-LLM-backend clients, whose tensors have a batch dimension",
            TRTLLM_INPUTS,
            TRTLLM_OUTPUTS,
            max_batch_size=64,
            is_trtllm=True,
        ),
        Variant(
            "trtllm_infer",
            "the same clients where they call /infer, infer() or async_infer()",
            TRTLLM_INPUTS,
            TRTLLM_OUTPUTS,
            max_batch_size=64,
            is_decoupled=False,
            is_trtllm=True,
        ),
        Variant(
            "infer",
            "clients of /infer and ModelInfer, one response a request",
            INFER_INPUTS,
            is_decoupled=False,
        ),
        Variant(
            "raw",
            "whole bodies through /infer with Inference-Header-Content-Length: 0, and SageMaker's "
            "/invocations",
            (REQUEST,),
            (RESPONSE,),
            is_decoupled=False,
        ),
        Variant(
            "preprocessing",
            "TensorRT-LLM-backend clients that turn text into tokens by themselves",
            PREPROCESSING_INPUTS,
            PREPROCESSING_OUTPUTS,
            max_batch_size=64,
            is_decoupled=False,
            step="preprocessing",
        ),
        Variant(
            "postprocessing",
            "the same clients, for the text of the tokens",
            POSTPROCESSING_INPUTS,
            POSTPROCESSING_OUTPUTS,
            max_batch_size=64,
            is_decoupled=False,
            step="postprocessing",
        ),
    )
}


@dataclass(frozen=True)
class Alias:
    """An alias model that is to be written."""

    variant: Variant
    name: str = ""
    """A chosen one; some clients have theirs built in, such as `ensemble`."""

    def model_name(self, name: str) -> str:
        """Return what Triton calls the alias model of the model `name`."""
        return self.name or self.variant.model_name(name)
