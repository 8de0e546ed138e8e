"""Kinds of bodies, of whose answers something is learnt."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

TRIES: Final = 64
"""Answers that may be looked at before nothing more is learnt of a kind of bodies."""
AT_ONCE: Final = 4
"""Answers to bodies of one kind that are looked at."""
MOST_KINDS: Final = 256
"""Kinds that are remembered."""


class LearntKind:
    """Bodies that are the same but for what is free."""

    def __init__(self) -> None:
        self._is_new = True
        self.num_open = 0
        """Answers that are looked at now."""
        self._num_ended = 0
        """Answers that were looked at."""
        self.is_known = False
        """Whether the answers that were looked at agree."""

    def was_seen_now(self) -> bool:
        """Note that a body came; tell whether it was the first one."""
        is_new, self._is_new = self._is_new, False
        return is_new

    @property
    def may_learn(self) -> bool:
        """Whether another answer may be looked at."""
        return not self.is_known and self.num_open < AT_ONCE and self._num_ended < TRIES


K = TypeVar("K", bound=LearntKind)


class LearntKinds(OrderedDict[Any, K]):
    """The kinds that came last, by their keys.

    Args:
        make: makes a new one.
    """

    def __init__(self, make: Callable[[], K]) -> None:
        super().__init__()
        self._make = make

    def of(self, key: Any) -> K:
        """Return the kind of bodies with a key, which is new if no such body came lately."""
        kind = self.get(key)
        if kind is None:
            kind = self[key] = self._make()
            if len(self) > MOST_KINDS:
                self.popitem(last=False)
        else:
            self.move_to_end(key)
        return kind
