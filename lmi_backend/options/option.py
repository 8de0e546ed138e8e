"""What one row of the option table says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options.kinds import Kind

T = TypeVar("T")

Scope = Literal[
    "common", "server", "vllm", "adapters", "chat", "sessions", "speculative", "lmcache"
]
Fate = Literal["mapped", "ignored", "refused"]

PREFIX = "option."


@dataclass(frozen=True, kw_only=True, eq=False)
class Option(Generic[T]):
    """One thing a user can set.

    `default` is what the plan uses when nobody set it; `None` leaves it to the engine.
    """

    name: str
    kind: Kind[T]
    default: T
    help: str
    scope: Scope = "common"
    aliases: tuple[str, ...] = ()
    """Other keys with the same meaning; two that differ are refused."""
    prefixed_env: str = ""
    """LMI's own spelling of the OPTION_ or SERVING_ variable, where it breaks the rule."""
    env: tuple[str, ...] = ()
    """Bare variables, best first, used when neither the file nor OPTION_* sets it."""
    overriding_env: tuple[str, ...] = ()
    """Variables that win over the file."""
    engine_args: Mapping[str, str] = field(default_factory=dict)
    """Engine name to the engine's own argument, for options that are handed on as they are."""
    fate: Fate = "mapped"
    reason: str = ""
    """Why it is ignored, or what to use instead of a refused one."""

    @property
    def is_prefixed(self) -> bool:
        """Whether it is one of LMI's `option.` keys rather than a key of its server."""
        return self.name.startswith(PREFIX)

    @property
    def variable(self) -> str:
        """The environment form: OPTION_X or SERVING_X."""
        if self.prefixed_env:
            return self.prefixed_env
        if self.is_prefixed:
            stem = self.name.removeprefix(PREFIX)
            return f"OPTION_{stem.upper() if stem.islower() else stem}"
        return f"SERVING_{self.name.upper()}"
