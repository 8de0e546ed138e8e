"""Bodies of embeddings that differ in their inputs alone, and what is known of their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.engines.vllm.inside import fast_paths

if TYPE_CHECKING:
    from lmi_backend.engines.vllm.inside.embedding_lessons import EmbeddingLesson, LearntEmbeddings

NAME: Final = "known_embeddings"
EXPECTED: Final = "answers that are made as earlier ones were"
TRIES: Final = 64
"""Answers that may be looked at before nothing more is learnt of a kind of bodies."""
AT_ONCE: Final = 4
"""Answers to bodies of one kind that are looked at."""


class EmbeddingKind:
    """Bodies that are the same but for their inputs."""

    def __init__(self) -> None:
        self._is_new = True
        self.num_open = 0
        """Answers that are looked at now."""
        self._num_ended = 0
        """Answers that were looked at."""
        self.learnt: LearntEmbeddings | None = None
        self.is_known = False
        """Whether two answers agree."""

    def was_seen_now(self) -> bool:
        """Note that a body came; tell whether it was the first one."""
        is_new, self._is_new = self._is_new, False
        return is_new

    @property
    def may_learn(self) -> bool:
        """Whether another answer may be looked at."""
        return not self.is_known and self.num_open < AT_ONCE and self._num_ended < TRIES

    def learn(self, lesson: EmbeddingLesson) -> None:
        """Learn from an answer."""
        self._num_ended += 1
        try:
            found = lesson.learnt()
            is_other = not (found is None or self.learnt is None or found == self.learnt)
        except Exception as error:  # noqa: BLE001  its answer has been sent
            fast_paths.turn_off(NAME, EXPECTED, f"{type(error).__name__}: {error}")
            return
        if is_other:
            came = "two answers to like bodies are made in two ways"
            fast_paths.turn_off(NAME, EXPECTED, came)
        elif found is not None:
            self.is_known, self.learnt = self.learnt is not None, found
