"""Bodies that differ in their messages alone, and what is known of the answers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.engines.vllm.inside import fast_paths
from lmi_backend.engines.vllm.inside.chat_lessons import EXPECTED, NAME

if TYPE_CHECKING:
    from lmi_backend.engines.vllm.inside.chat_lessons import Learnt, Lesson

TRIES: Final = 64
"""Answers that may be looked at before nothing more is learnt of a kind of bodies."""
AT_ONCE: Final = 4
"""Answers to bodies of one kind that are looked at."""


class BodyKind:
    """Bodies that are the same but for their messages."""

    def __init__(self) -> None:
        self._is_new = True
        self.num_open = 0
        """Answers that are looked at now."""
        self._num_ended = 0
        """Answers that were looked at."""
        self.learnt: Learnt | None = None
        self._num_prompt_tokens = 0
        """Of the answer that it was learnt from."""
        self.is_known = False
        self.is_checked = False
        """Whether a body of the kind has passed `check_body` as it was."""

    def was_seen_now(self) -> bool:
        """Note that a body came; tell whether it was the first one."""
        is_new, self._is_new = self._is_new, False
        return is_new

    @property
    def may_learn(self) -> bool:
        """Whether another answer may be looked at."""
        return not self.is_known and self.num_open < AT_ONCE and self._num_ended < TRIES

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
