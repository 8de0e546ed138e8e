"""Bytes that clients of one key do not read cost no other key a connection."""

from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

from lmi_backend.frontend.http.protocol import end_unread


@dataclass
class Connection:
    """One, and what waits in it."""

    owner: str
    size: int
    transport: Mock = field(default_factory=Mock)

    def __post_init__(self) -> None:
        self.transport.get_write_buffer_size.return_value = self.size


def test_the_key_for_which_most_waits_loses_connections() -> None:
    many: list[Any] = [Connection("many", 10) for _ in range(9)]
    few: Any = Connection("few", 40)
    assert end_unread([few, *many], 130) == 0
    assert end_unread([few, *many], 100) == 3
    few.transport.abort.assert_not_called()
    assert sum(each.transport.abort.called for each in many) == 3
