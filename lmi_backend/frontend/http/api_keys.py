"""Who may send requests: keys, what each is allowed, and how much each has used."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import re
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.spec import OPERATOR
from lmi_backend.errors import ConfigurationError, HttpError
from lmi_backend.frontend.http.certificate import Stamp, stamp_of, text_of
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,14}")
_LIMITS: Final = ("running", "requests-per-minute", "tokens-per-minute")
ACCEPTED: Final = f"NAME sha256:HASH [{OPERATOR}] [{']['.join(f'{each}=N' for each in _LIMITS)}]"
"""A line of the file."""
_LOOK_SECONDS: Final = 1.0
_MINUTE: Final = 60.0


def hash_of(key: str) -> str:
    """Return what the file holds of a key; keys are long and random, so a plain hash is enough."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


class RateLimitError(HttpError):
    """A key has used what it may for now; `seconds`: until its next request."""

    def __init__(self, text: str, seconds: float) -> None:
        self.seconds = max(1, math.ceil(seconds))
        super().__init__(HTTPStatus.TOO_MANY_REQUESTS, text)


class OtherProcessError(RateLimitError):
    """Other processes of the front end hold all of a key's limit: a new connection may help."""


@dataclass
class _Bucket:
    """What may be used in a minute; it fills steadily."""

    per_minute: float
    level: float = 0.0
    at: float = 0.0

    def __post_init__(self) -> None:
        self.level, self.at = self.per_minute, time.monotonic()

    def wait(self) -> float:
        now = time.monotonic()
        self.level = min(self.per_minute, self.level + (now - self.at) * self.per_minute / _MINUTE)
        self.at = now
        return max(0.0, (1 - self.level) * _MINUTE / self.per_minute)

    def take(self, count: float) -> None:
        self.level -= count


@dataclass(eq=False)
class ApiKey:
    """A key, by the name that logs show.

    A limit of 0 is held by other processes of the front end.
    """

    name: str
    digest: str
    is_operator: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    running: int = 0
    """Requests that run now."""

    def __post_init__(self) -> None:
        self._buckets = {
            name: _Bucket(count)
            for name, count in self.limits.items()
            if count and name != _LIMITS[0]
        }

    @property
    def identity(self) -> tuple[object, ...]:
        """What a line says; a key that is the same after a change keeps what it has used."""
        return self.name, self.digest, self.is_operator, *self.limits.items()

    @property
    def has_token_limit(self) -> bool:
        return _LIMITS[2] in self._buckets

    def enter(self, *, is_back: bool = False) -> None:
        """Count a request as running; call `leave` at its end.

        Args:
            is_back: whether it is for an answer of this key that is here. Such a request brings no
                tokens of its own. While it is read, it runs in addition to that answer.

        Raises:
            RateLimitError: it is one too many.
        """
        if (
            none := next((name for name, most in self.limits.items() if not most), None)
        ) is not None:
            text = f"other processes of the front end hold all of this key's {none}: connect again"
            raise OtherProcessError(text, 1)
        most = self.limits.get(_LIMITS[0], math.inf)
        if self.running >= most * (1 + is_back):
            raise RateLimitError(f"{most} requests of this key run already", 1)
        for name, bucket in self._buckets.items():
            is_due = not is_back or name != _LIMITS[2]
            if is_due and (seconds := bucket.wait()) > 0:
                raise RateLimitError(f"this key has used its {name.replace('-', ' ')}", seconds)
        if _LIMITS[1] in self._buckets:
            self._buckets[_LIMITS[1]].take(1)
        self.running += 1

    def leave(self, tokens: int) -> None:
        """Count a request as finished; `tokens` are those of its prompt and its answer."""
        self.running -= 1
        if _LIMITS[2] in self._buckets:
            self._buckets[_LIMITS[2]].take(tokens)


class ApiKeys:
    """The keys of a file, and one of the environment. With neither, nobody needs a key.

    Args:
        file: a key a line; read again when it changes.
        single: a key that is given itself, not as a hash; empty for none.
        processes: those that share the port; each holds its part of a key's limits.
        place: number of this process, from 0.
    """

    def __init__(
        self, file: Path | None, single: str = "", processes: int = 1, place: int = 0
    ) -> None:
        self._file, self._processes, self._place = file, processes, place
        self._single = [ApiKey("default", hash_of(single), is_operator=True)] if single else []
        self.are_needed: Final = file is not None or bool(single)
        """Whether a request must have a key."""
        self._keys: list[ApiKey] = []
        self._stamp: Stamp | None = None
        self._looked = -math.inf
        if file is not None:
            self._stamp, self._keys = stamp_of(file), list(self._read(file))

    def find(self, given: str) -> ApiKey:
        """Return the key that a client gives. Raises HttpError: there is none such (401)."""
        self._renew()
        digest, match = hash_of(given), None
        # All of them, so that the time does not tell which.
        for key in (*self._single, *self._keys):
            if hmac.compare_digest(digest, key.digest):
                match = key
        if not given:
            raise HttpError(HTTPStatus.UNAUTHORIZED, "a key is needed: Authorization: Bearer …")
        if match is None:
            raise HttpError(HTTPStatus.UNAUTHORIZED, "this key is not known to the server")
        return match

    def _renew(self) -> None:
        now = time.monotonic()
        if self._file is None or now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        stamp = stamp_of(self._file)
        if stamp == self._stamp:
            return
        # What cannot be read is looked at again when it changes.
        self._stamp = stamp
        earlier = {key.identity: key for key in self._keys}
        try:
            renewed = list(self._read(self._file))
        except Exception as error:  # noqa: BLE001  a request must not fail by a file of ours
            _log.error("the keys are left as they were: %s", error)
            return
        self._keys = [earlier.get(key.identity, key) for key in renewed]
        _log.info("%d keys are read from %s", len(self._keys), self._file)

    def _read(self, file: Path) -> Iterator[ApiKey]:
        text = text_of("--api-keys", file)
        names: set[str] = set()
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            key = _read_line(words, f"{file}:{number}", self._part)
            if key.name in names:
                raise ConfigurationError(f"{file}:{number}: the name {key.name} is used twice")
            names.add(key.name)
            yield key

    def _part(self, limit: int) -> int:
        """Return what this process holds of a limit; those of all processes add up to it."""
        whole, rest = divmod(limit, self._processes)
        return whole + (self._place < rest)


def _read_line(words: list[str], place: str, part: Callable[[int], int]) -> ApiKey:
    name, digest, *more = [*words, ""][: max(2, len(words))]
    if not _NAME.fullmatch(name) or not _HASH.fullmatch(digest):
        raise ConfigurationError(f"{place}: accepted: {ACCEPTED} (`lmi-backend api-key NAME`)")
    limits: dict[str, int] = {}
    for word in more:
        limit, _, count = word.partition("=")
        if limit in _LIMITS and _COUNT.fullmatch(count):
            limits[limit] = part(int(count))
        elif word != OPERATOR:
            raise ConfigurationError(f"{place}: {printable(word)} is unknown; accepted: {ACCEPTED}")
    return ApiKey(name, digest, OPERATOR in more, limits)
