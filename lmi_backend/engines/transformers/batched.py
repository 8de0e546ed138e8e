"""Requests in the library's own continuous batch."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from lmi_backend.engines.steps import StepOutput
from lmi_backend.errors import EngineDeadError, EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from lmi_backend.engines.transformers.loading import Loaded

_log = logging.getLogger(__name__)

_CPU_STEP_TOKENS: Final = 512
_CPU_BLOCKS: Final = {"page_size": 128, "num_blocks": 512}
"""The KV cache on the CPU where the plan could not size it."""
# Ranks synchronise ten times a second, but not while one of them loads or is paused.
_GROUP_SECONDS: Final = 24 * 3600.0
_STOP_SECONDS: Final = 5.0


class ContinuousBatch:
    """The library's manager: one thread that steps all requests together.

    Under MPI every rank has one; only rank 0's takes requests, the others follow it.
    """

    def __init__(self, loaded: Loaded, arguments: dict[str, Any]) -> None:
        sizes = _sizes(loaded, arguments)
        tokens = sizes["page_size"] * sizes["num_blocks"] if sizes else loaded.max_model_len
        self.max_model_len = min(loaded.max_model_len, tokens)
        """Tokens of the longest sequence that the cache holds."""
        self._manager = loaded.model.init_continuous_batching(
            # Requests may have a temperature, top_k and top_p only if none of these is neutral.
            generation_config=GenerationConfig(
                do_sample=True,
                temperature=0.5,
                top_k=50,
                top_p=0.5,
                max_new_tokens=loaded.max_model_len,
                eos_token_id=-1,
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                max_requests_per_batch=arguments["max_batch_size"],
                per_request_processors=True,
                cpu_group_timeout=_GROUP_SECONDS,
                **sizes,
            ),
        )
        self._ids = itertools.count()
        self._manager.start()

    def submit(
        self,
        ids: Sequence[int],
        arguments: dict[str, Any],
        on_step: Callable[[StepOutput], None],
        *,
        is_streamed: bool,
    ) -> Callable[[], None]:
        """Start a request; return a function that cancels it. Call both inside the event loop.

        Args:
            arguments: of the manager's `add_request`.
            on_step: called inside the event loop.

        Raises:
            EngineDeadError: the manager has stopped.
        """
        request_id, seen = str(next(self._ids)), 0

        def on_output(output: Any) -> None:
            nonlocal seen
            new, seen = output.generated_tokens[seen:], len(output.generated_tokens)
            error = self._failure(output.error) if output.error is not None else None
            on_step(StepOutput(new, is_over=output.is_finished(), error=error))

        self._manager.register_result_handler(request_id, on_output)
        added = self._manager.add_request(
            list(ids), request_id=request_id, streaming=is_streamed, **arguments
        )
        if added is None:
            self._forget(request_id)
            raise self._death()
        return lambda: self._cancel(request_id)

    def pause(self) -> AbstractContextManager[None]:
        pause: AbstractContextManager[None] = self._manager.pause()
        return pause

    def check_health(self) -> None:
        if not self._manager.is_running():
            raise self._death()

    def close(self) -> None:
        self._manager.stop(block=True, timeout=_STOP_SECONDS, hard_stop=True)

    def _cancel(self, request_id: str) -> None:
        # A cancelled request gets no last output, so nothing else would forget its handler.
        if self._forget(request_id):
            self._manager.cancel_request(request_id)

    def _forget(self, request_id: str) -> bool:
        return self._manager.output_router.result_handlers.pop(request_id, None) is not None

    def _failure(self, text: str) -> Exception:
        if self._manager.background_thread_status.fatal_error is not None:
            return self._death()
        return EngineError(f"Transformers failed on this request: {text}")

    def _death(self) -> EngineDeadError:
        cause = self._manager.background_thread_status.fatal_error
        return EngineDeadError(f"Transformers' continuous batch died: {cause or 'it was stopped'}")


def _sizes(loaded: Loaded, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the size of KV cache and step where the library would take most of the host."""
    if torch.device(loaded.model.device).type != "cpu":
        return {}
    blocks = {name: arguments.get(name, size) for name, size in _CPU_BLOCKS.items()}
    _log.info("KV cache size: %d tokens", blocks["page_size"] * blocks["num_blocks"])
    return blocks | {"max_batch_tokens": _CPU_STEP_TOKENS}
