"""Take the new tokens of a step past what vLLM does for each output.

vLLM's output processor looks at each field of each output, and has each token decoded as it comes.
In the middle of most answers an output has new tokens and nothing else. Nobody looks at their text
before some of them are sent together. Those tokens go to their sender, which has them decoded.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, idle
from lmi_backend.engines.vllm.inside.token_reader import EXPECTED, READER, threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lmi_backend.engines.vllm.inside.token_reader import TokenTaker

_ALONE: Final = "outputs with new tokens alone"
_OF_PROMPT: Final = ("num_cached_tokens", "num_external_computed_tokens")
"""Members that are the same in each output of a request, before 0.22; the first has told them."""
_LOOKED_AT: Final = 4
"""Outputs of the middle of a request that had more, before somebody looks what that is."""
_KNOWN: Final = frozenset(
    {
        "new_logprobs", "new_prompt_logprobs_tensors",
        "pooling_output", "finish_reason", "stop_reason", "events", "kv_transfer_params",
        "ec_transfer_params", "trace_headers", "prefill_stats", *_OF_PROMPT,
        "routed_experts", "num_nans_in_logits", "mm_cache_miss_hashes", "new_sampling_mask",
        "spec_decode_metrics", "prompt_token_id_logprobs",
    }
)  # fmt: skip
"""Members of the outputs of the releases that were run: they are the choice of some requests."""


def first_parameter(function: Any) -> str:
    """Return the name of the first parameter of a function of vLLM, or of its stand-in here."""
    owner = getattr(function, "__self__", None)
    names: Mapping[str, str] = getattr(owner, "first_parameters", {})
    return names.get(function.__name__) or next(iter(inspect.signature(function).parameters))


class NewTokens:
    """Stands before the output processor of an AsyncLLM. `attach` puts it there.

    Args:
        engine: the AsyncLLM.
        plain: an EngineCoreOutput of this vLLM with new tokens and nothing else.
    """

    def __init__(self, engine: Any, plain: Any) -> None:
        self._processor, self._plain = engine.output_processor, plain
        self._process = self._processor.process_outputs
        self._parameter = first_parameter(self._process)
        """By which vLLM may give the outputs."""
        self.first_parameters = {self._process_others.__name__: self._parameter}
        self._usual = {self._parameter, "engine_core_timestamp", "iteration_stats"}
        self._of_prompt = [name for name in _OF_PROMPT if hasattr(plain, name)]
        self._noted: Any = None
        """What came with the outputs before."""
        self.num_taken = self._num_before = 0
        """Outputs that vLLM has not seen; and how many it had not at the last look."""
        self._passed = idle.PassedBy("new_tokens", _ALONE)

    def attach(self) -> None:
        """See all outputs from now on.

        Raises:
            TypeError: vLLM counts them for its own metrics, so it must see them.
        """
        if self._processor.log_stats:
            raise TypeError("vLLM counts each of them (log_stats)")
        self._processor.process_outputs = self._process_others

    def _process_others(self, *given: Any, **named: Any) -> Any:
        idle.note_use("new_tokens")
        if threads and threading.get_ident() not in threads:
            fast_paths.turn_off("new_tokens", idle.ONE_THREAD, "outputs of another thread")
            return self._process(*given, **named)
        try:
            outputs = given[0] if given else named[self._parameter]
            # The version of the weights, by any name.
            noted = given[3:], {name: named[name] for name in named if name not in self._usual}
            # The same object for as long as it is the same: it is compared with each output.
            if noted == self._noted:
                noted = self._noted
            self._noted = noted
            left = self._left(outputs, noted)
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            fast_paths.turn_off(
                "new_tokens", "outputs in a list", f"{type(error).__name__}: {error}"
            )
            return self._process(*given, **named)
        if given:
            return self._process(left, *given[1:], **named)
        return self._process(**{**named, self._parameter: left})

    def _left(self, outputs: Iterable[Any], noted: Any) -> list[Any]:
        """Take what has new tokens and nothing else; return the other outputs.

        Args:
            noted: further arguments, which vLLM may note for the tokens.
        """
        left: list[Any] = []
        plain, of_prompt, states = self._plain, self._of_prompt, self._processor.request_states
        is_on = fast_paths.is_on("new_tokens")
        # Each token passes here, so that nothing is called that can be said in a line.
        for output in outputs:
            state: Any = None
            reader: Any = None
            lists: Any = None
            is_plain = False
            try:
                state = states.get(output.request_id)
                reader = getattr(state, READER, None)
                if reader is None:
                    left.append(output)
                    continue
                plain.request_id, plain.new_token_ids = output.request_id, output.new_token_ids
                if reader.logprobs is not None:
                    lists = output.new_logprobs
                plain.new_logprobs = lists
                for name in of_prompt:
                    setattr(plain, name, getattr(output, name))
                if is_on and (noted is reader.noted or noted == reader.noted) and output == plain:
                    is_plain = True
            except ValueError:  # it has an array where the other one has none
                pass
            except Exception as error:  # noqa: BLE001  tokens that were taken before are still here
                _turn_off(error)
                is_on = False
            try:
                is_taken = is_plain and reader.take(output.new_token_ids, lists)
            except Exception as error:  # noqa: BLE001  it must not end the other requests
                is_taken = _fail(state, error)
            if is_taken:
                self.num_taken += 1
                continue
            if reader is not None:
                self._settle(output, reader, noted)
            left.append(output)
        return left

    def _settle(self, output: Any, reader: TokenTaker, noted: Any) -> None:
        """Have a reader hand over what it has, before vLLM gets an output."""
        try:
            before, reader.noted = reader.noted, noted
            # vLLM continues from all tokens before.
            reader.settle()
            if before is not reader and output.finish_reason is None:
                self._pass(output, reader, {} if before == noted else {"process_outputs": noted})
        except Exception as error:  # noqa: BLE001  it must not end the other requests
            _turn_off(error)

    def _pass(self, output: Any, reader: TokenTaker, unknown: dict[str, Any]) -> None:
        """Note an output of the middle that is left to vLLM; a request that has many is looked at.

        Args:
            unknown: what else came with it, where that has changed.

        Raises:
            Exception: its members cannot be told.
        """
        reader.num_passed += 1
        if reader.num_passed != _LOOKED_AT:
            return
        if self.num_taken > self._num_before:
            self._num_before = self.num_taken
            self._passed.took()
        plain = self._plain
        members = getattr(plain, "__struct_fields__", None) or vars(plain)
        unknown |= {
            name: getattr(output, name)
            for name in members
            if name not in _KNOWN and _differ(getattr(output, name), getattr(plain, name))
        }
        self._passed.passed(unknown)


def _differ(ours: Any, theirs: Any) -> bool:
    try:
        return bool(ours != theirs)
    except ValueError:  # an array
        return True


def _turn_off(error: Exception) -> None:
    fast_paths.turn_off("new_tokens", EXPECTED, f"{type(error).__name__}: {error}")


def _fail(state: Any, error: Exception) -> bool:
    """Fail a request; False if this vLLM does not let us."""
    try:
        state.queue.put(error)
    except Exception as other:  # noqa: BLE001  it must not end the other requests
        _turn_off(other)
        return False
    return True
