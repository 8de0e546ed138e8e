"""Bodies that differ in their messages alone, and what is known of the answers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.engines.vllm.inside import fast_paths
from lmi_backend.engines.vllm.inside.chat_lessons import EXPECTED, NAME
from lmi_backend.engines.vllm.inside.learnt_kinds import TRIES, LearntKind

if TYPE_CHECKING:
    from lmi_backend.engines.vllm.inside.chat_lessons import Learnt, Lesson


class BodyKind(LearntKind):
    """Bodies that are the same but for their messages."""

    def __init__(self) -> None:
        super().__init__()
        self.learnt: Learnt | None = None
        self._num_prompt_tokens = 0
        """Of the answer that it was learnt from."""
        self.is_checked = False
        """Whether a body of the kind has passed `check_body` as it was."""

    def learn(self, lesson: Lesson, *, needs_content: bool) -> None:
        """Learn from an answer.

        Args:
            needs_content: whether answers may have more than one event of text.
        """
        self._num_ended += 1
        try:
            found = lesson.learnt()
        except Exception as error:  # noqa: BLE001  its answer has been sent
            fast_paths.turn_off(NAME, EXPECTED, f"{type(error).__name__}: {error}")
            return
        if found is None or self.is_known:
            return
        if self.learnt is None:
            self.learnt, self._num_prompt_tokens = found, lesson.num_prompt_tokens
            return
        if (merged := self.learnt.merged(found)) is None:
            self.learnt, self._num_ended = None, TRIES
            return
        self.learnt = merged
        # What one prompt leaves could be a limit by accident.
        tells_limit = not found.is_rest or self._num_prompt_tokens != lesson.num_prompt_tokens
        self.is_known = tells_limit and not (needs_content and merged.layouts.content is None)
