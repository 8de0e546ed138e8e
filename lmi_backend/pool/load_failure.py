"""Why a model could not be loaded, as Triton hands on what its stub said."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lmi_backend.printable import cut

LIKELY: Final = "; likely cause: "
"""Stands between what happened and what to do about it."""
LAST_LINES: Final = ". Its last lines:\n"
"""Stands before what the worker said."""
# Triton's and its Python backend's own words before ours, and where in our code they were raised.
_HEAD: Final = re.compile(
    r"^(?:load failed for model '[^']*': )?(?:version \S+ is at UNAVAILABLE state: )?"
    r"(?:Internal: |Invalid argument: )?(?:TritonModelException: )?"
)
_PLACE: Final = "\n\nAt:"
_NO_ADVICE: Final = "read the model's lines in the log (--log-file FILE, or -v)"
# Our own errors say what to do after what is wrong.
_OWN_ADVICE: Final = re.compile(r"; (?=(?:check|install|request|run|set|start|stop|use) )")
_LONGEST: Final = 600
_UNLOADED: Final = "unloaded"


def has_failed(state: str, reason: str) -> bool:
    """Tell whether Triton's index says of a model that it could not be loaded."""
    return state == "UNAVAILABLE" and reason not in ("", _UNLOADED)


def first_line(text: str) -> str:
    """Return what an error of a start says, without the worker's last lines: the log has these."""
    return text.partition(LAST_LINES)[0].partition("\n")[0]


class LoadFailure(NamedTuple):
    """A model that is not served."""

    model: str
    cause: str
    """In one line."""
    advice: str
    """What to do about it."""

    @classmethod
    def of(cls, model: str, reason: str) -> LoadFailure:
        """Return what Triton's index gives as the reason."""
        text = _HEAD.sub("", reason.strip()).partition(_PLACE)[0]
        message, _, lines = text.partition(LAST_LINES)
        cause, _, advice = message.partition(LIKELY)
        if not advice and not lines and (own := _OWN_ADVICE.search(message)):
            cause, advice = message[: own.start()], message[own.end() :]
        if not advice and lines:
            # The last line of a traceback says what it is about.
            cause += f": {lines.strip().splitlines()[-1]}"
        one_line = " ".join(cause.split())
        return cls(model, cut(one_line, _LONGEST), " ".join(advice.split()) or _NO_ADVICE)

    @property
    def brief(self) -> str:
        """Cause and advice in one line."""
        return self.cause if self.advice == _NO_ADVICE else f"{self.cause}; {self.advice}"

    def __str__(self) -> str:
        """Return three lines: model, cause, advice."""
        return f"model {self.model} does not start\n  cause:  {self.cause}\n  advice: {self.advice}"
