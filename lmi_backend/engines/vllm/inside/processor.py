"""vLLM's output processor, with answers of our own next to its requests.

An AsyncLLM hands each request to its output processor before its core gets it, and each step's
outputs after. A subclass keeps the requests that `answers.generate` sends; their outputs go to an
`OwnAnswer`. All others are vLLM's: its handler, aborts, statistics and errors stay what they are.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.vllm.inside import compat, forced_ids
from lmi_backend.engines.vllm.inside.answers import current_generation
from lmi_backend.engines.vllm.inside.replay import current_replay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmi_backend.engines.vllm.inside.answers import OwnAnswer
    from lmi_backend.engines.vllm.inside.replay import ReplayedAnswer


class OwnAnswers:
    """What a processor does besides vLLM's own work; `attach` makes the class of both."""

    answers: dict[str, OwnAnswer]
    """Those that are open, by the engine's id of a request."""
    replays: dict[str, ReplayedAnswer]
    """Of requests of vLLM's whose core repeats tokens, by the same ids."""
    recorded: tuple[list[Any], list[Any]] | None
    """Requests and outputs of vLLM's that pass, while `self_test` looks at them."""

    def add_request(self, request: Any, *more: Any, **named: Any) -> None:
        """Take a request, which the core gets next; both may be changed here."""
        # A client could name ids that no vocabulary has, and its core would die.
        forced_ids.remove(request.sampling_params)
        ours, resumed = current_generation.get(), current_replay.get()
        if ours is not None:
            self.answers[request.request_id] = ours.answer(request, self)
            return
        if self.recorded is not None:
            self.recorded[0].append(copy(request))
        super().add_request(request, *more, **named)  # type: ignore[misc]
        if resumed is not None and not resumed.is_begun and resumed.begin(request, self):
            self.replays[request.request_id] = resumed

    def process_outputs(self, engine_core_outputs: Iterable[Any], *more: Any, **named: Any) -> Any:
        """Give the outputs of a step to those that they are for."""
        answers, theirs, stopped = self.answers, [], []
        # Each token passes here, so that nothing is called that can be said in a line.
        for output in engine_core_outputs:
            answer = answers.get(output.request_id)
            if answer is None:
                theirs.append(output)
            elif answer.take(output):
                del answers[output.request_id]
                if output.finish_reason is None:
                    # The core does not know of a stop string, nor of a failure of ours.
                    stopped.append(output.request_id)
        if self.replays:
            theirs = [new for each in theirs if (new := self._new_alone(each)) is not None]
        if self.recorded is not None:
            self.recorded[1].extend(map(_kept, theirs))
        processed = super().process_outputs(theirs, *more, **named)  # type: ignore[misc]
        processed.reqs_to_abort.extend(stopped)
        return processed

    def _new_alone(self, output: Any) -> Any:
        """Return an output without what it repeats; None if nothing is left."""
        resumed = self.replays.get(output.request_id)
        if resumed is None:
            return output
        try:
            return resumed.new_of(output)
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            resumed.fail(error)
            return None
        finally:
            if resumed.is_over:
                del self.replays[output.request_id]

    def propagate_error(self, error: Exception) -> None:
        """Fail all requests: the core is dead."""
        super().propagate_error(error)  # type: ignore[misc]
        for answer in list(self.answers.values()):
            answer.fail(error)
        self.answers.clear()

    def get_num_unfinished_requests(self) -> int:
        """Return how many requests are open."""
        theirs: int = super().get_num_unfinished_requests()  # type: ignore[misc]
        return theirs + len(self.answers)

    def has_unfinished_requests(self) -> bool:
        """Tell whether any request is open."""
        return self.get_num_unfinished_requests() > 0

    def get_num_queued_tokens(self) -> int:
        """Return how many tokens the prompts have that no output came for (since 0.32)."""
        theirs: int = super().get_num_queued_tokens()  # type: ignore[misc]
        return theirs + sum(each.prompt_len for each in self.answers.values() if each.is_prefilling)


def _kept(output: Any) -> Any:
    """Return a copy of an output, whose list of ids vLLM extends when it merges outputs."""
    kept = copy(output)
    kept.new_token_ids = list(output.new_token_ids)
    return kept


def attach(engine: Any) -> None:
    """Have the processor of an AsyncLLM keep our answers, before its first request.

    Raises:
        Exception: this vLLM's is of another kind.
    """
    theirs = engine.output_processor
    if theirs.request_states:
        raise RuntimeError("it has requests already")
    theirs.answers, theirs.replays, theirs.recorded = {}, {}, None
    compat.subclass(theirs, OwnAnswers, may_lack={"get_num_queued_tokens"})
