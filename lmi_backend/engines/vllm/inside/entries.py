"""What an entry of the table of names inside vLLM says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FastPath:
    """One place where this package reaches into vLLM."""

    name: str
    purpose: str
    """What it is for; a noun phrase."""
    names: tuple[str, ...]
    """What it touches: `Class.member`, or a function, as vLLM spells them.

    A question mark is behind those that older releases do not have, nor need.
    """
    public_way: str
    """What answers the same requests without it; empty if nothing does."""
    cost: str
    """What the public way costs, or what fails without the path."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Names without which nothing is served; an engine that lacks one is refused."""

    name: str
    purpose: str
    names: tuple[str, ...]
    """As a fast path's; in parentheses, for a function, all the arguments that it is given.

    `name=` is given by name, `name=?` where the release takes it, others by their places.
    """
