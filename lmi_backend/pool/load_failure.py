"""Why a model could not be loaded, as Triton hands on what its stub said."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import private_folder
from lmi_backend.printable import cut

LIKELY: Final = "; likely cause: "
"""Stands between what happened and what to do about it."""
LAST_LINES: Final = ". Its last lines:\n"
"""Stands before what the worker said."""
_SAVED: Final = "; its last lines are in "
"""Stands before the name of the file that has them."""
# Triton's and its Python backend's own words before ours, and where in our code they were raised.
_HEAD: Final = re.compile(
    r"^(?:load failed for model '[^']*': )?(?:version \S+ is at UNAVAILABLE state: )?"
    r"(?:Internal: |Invalid argument: )?(?:TritonModelException: )?"
)
_PLACE: Final = "\n\nAt:"
_NO_ADVICE: Final = "read the model's lines in the log (--log-file FILE, or -v)"
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]")
_LONGEST_NAME: Final = 100
# Our own errors say what to do after what is wrong.
_OWN_ADVICE: Final = re.compile(r"; (?=(?:check|install|request|run|set|start|stop|use) )")
_LONGEST: Final = 600
_UNLOADED: Final = "unloaded"


def has_failed(state: str, reason: str) -> bool:
    return state == "UNAVAILABLE" and reason not in ("", _UNLOADED)


def first_line(text: str) -> str:
    """Return what an error of a start says, without the worker's last lines: the log has these."""
    return text.partition(LAST_LINES)[0].partition("\n")[0]


def saved(worker: str, lines: str) -> str:
    """Write a worker's last lines into a file; return the text that names it, or an empty one.

    The file replaces that of the worker's last failure, so that a server which tries for ever
    fills no disk.
    """
    if not lines:
        return ""
    name = f"{_NOT_IN_NAMES.sub('_', worker)[-_LONGEST_NAME:]}.log"
    # What cannot be kept must not hide why the worker failed.
    with contextlib.suppress(OSError, ConfigurationError):
        folder = private_folder(Path(tempfile.gettempdir()) / f"lmi-failed-starts-{os.getuid()}")
        (folder / name).write_text(f"{lines}\n", "utf-8")
        return f"{_SAVED}{folder / name}"
    return ""


class LoadFailure(NamedTuple):
    model: str
    cause: str
    advice: str
    file: str = ""
    """Has the last lines of the worker."""

    @classmethod
    def of(cls, model: str, reason: str) -> LoadFailure:
        """Return what Triton's index gives as the reason."""
        text = _HEAD.sub("", reason.strip()).partition(_PLACE)[0]
        message, _, lines = text.partition(LAST_LINES)
        message, _, file = message.partition(_SAVED)
        cause, _, advice = message.partition(LIKELY)
        if not advice and not lines and (own := _OWN_ADVICE.search(message)):
            cause, advice = message[: own.start()], message[own.end() :]
        if not advice and lines:
            # The last line of a traceback says what it is about.
            cause += f": {lines.strip().splitlines()[-1]}"
        one_line = " ".join(cause.split())
        advice = " ".join(advice.split()) or (f"read {file}" if file else _NO_ADVICE)
        return cls(model, cut(one_line, _LONGEST), advice, file)

    @property
    def brief(self) -> str:
        """Cause and advice in one line, for clients too, which cannot read the file."""
        has_advice = self.advice not in (_NO_ADVICE, f"read {self.file}")
        return f"{self.cause}; {self.advice}" if has_advice else self.cause

    def __str__(self) -> str:
        lines = f"\n  lines:  {self.file}" if self.file else ""
        return (
            f"model {self.model} does not start\n  cause:  {self.cause}\n"
            f"  advice: {self.advice}{lines}"
        )
