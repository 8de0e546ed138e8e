"""Prompts that a completion shows before its answers (`echo`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ShownPrompt:
    """The prompt of one request; `mend` looks at each output before vLLM's server does.

    Args:
        params: vLLM's sampling parameters.
        given: what the server calls the engine with.
        is_all: whether the prompt is all that is wanted. vLLM generates a token to get there, which
            its server would count.
        is_shown: whether it is wanted at all.
    """

    def __init__(
        self, params: Any, given: Any = None, *, is_all: bool, is_shown: bool = True
    ) -> None:
        self._is_all = is_all
        # The server leaves an empty text out, and fails when it looks for that.
        is_of_tokens = isinstance(given, Mapping) and given.get("type") == "token"
        self._is_empty = is_shown and is_of_tokens and "prompt" not in given
        self._has_several = getattr(params, "n", 1) > 1
        self._logprobs: Any = None

    def mend(self, output: Any) -> None:
        """Mend an output of the request.

        Each of several answers brings the log probabilities of the prompt with its first output. If
        one of them is ahead, its second output may be merged with the first of another: that then
        has none, and vLLM's server looks for the prompt's tokens among the answer's.
        """
        if self._has_several and hasattr(output, "prompt_logprobs"):
            self._logprobs = self._logprobs or output.prompt_logprobs
            # Most have none, and a release may let nobody change an output.
            if output.prompt_logprobs is not self._logprobs:
                output.prompt_logprobs = self._logprobs
        if self._is_empty and getattr(output, "prompt", "") is None:
            output.prompt = ""
        if self._is_all:
            for each in output.outputs:
                each.text, each.token_ids = "", []
