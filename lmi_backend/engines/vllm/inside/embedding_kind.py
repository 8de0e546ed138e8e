"""Bodies of embeddings that differ in their inputs alone, and what is known of their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.engines.vllm.inside import fast_paths
from lmi_backend.engines.vllm.inside.learnt_kinds import LearntKind

if TYPE_CHECKING:
    from lmi_backend.engines.vllm.inside.embedding_lessons import EmbeddingLesson, LearntEmbeddings

NAME: Final = "known_embeddings"
EXPECTED: Final = "answers that are made as earlier ones were"


class EmbeddingKind(LearntKind):
    """Bodies that are the same but for their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.learnt: LearntEmbeddings | None = None

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
