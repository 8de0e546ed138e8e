"""A kept answer as its model keeps it too, for the next front end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.ipc.rejoining import Before

if TYPE_CHECKING:
    from lmi_backend.clients.form import Form
    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.kept_answer import KeptAnswer
    from lmi_backend.generation import Continuation


class AtModel:
    """Tells the model what becomes of an answer.

    Args:
        kept: the answer here.
        answer: what comes of it.
        writer: writes its events.
    """

    def __init__(self, kept: KeptAnswer, answer: Answer, writer: Form) -> None:
        self._kept, self.answer, self._writer = kept, answer, writer
        self.name = kept.name
        answer.keep(self)

    def moved(self) -> None:
        """Note that another front end has the answer."""
        self._kept.lose()

    def before(self, where: Continuation) -> Before | None:
        """Return what the client has got, where the model resumes it; None if that is not known.

        Only a writer that hands on what comes knows nothing else by then.
        """
        events, writer = self._kept.events.all(), self._writer
        if events is None or not isinstance(writer, HttpForm) or not writer.passes_events:
            return None
        counts = self._kept.num_tokens, self._kept.num_prompt_tokens
        return Before(
            dict(writer.headers), *events, where.ids, where.num_lines, where.head, *counts
        )
