"""What attackers have."""

from typing import Any

ECHO: dict[str, Any] = {"option.rolling_batch": "echo", "option.token_seconds": 0.02}
PYTHON = "/usr/bin/python3"
"""One that every user may run."""
ANOTHER_USER: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": (), "cwd": "/"}
"""Arguments of subprocess for a user without rights."""
CLIENT = {"authorization": "Bearer client-key"}
BOSS = {"x-api-key": "boss-key"}
"""Headers of a client, and of an operator, of a server that wants keys."""
METERED = 10
"""Tokens a minute of the keys `metered0`, `metered1` …"""
