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

RUNNING, WAITING = 4, 300
"""How many requests of a crowd run, and wait in the engine's own queue."""
SECRET = "0123456789-of-nobody"
UNSEEN = """option.rolling_batch=echo
option.token_seconds=0.0123
option.env=NOTHING_SAID={secret}
option.model_id=https://user:{secret}@hub/model
"""
"""Properties of which no client may see anything."""

# No name of these says that it is a secret's, or the suffix is one of those that were forgotten.
SECRETS = {
    "HF_TOKEN": "hf-0123456789-token",
    "SIGNING_PASSPHRASE": "0123456789-passphrase",
    "GITHUB_PAT": "0123456789-pat",
    "PROXY_AUTH": "0123456789-auth",
    "SESSION_COOKIE": "0123456789-cookie",
    "SENTRY_DSN": "0123456789-dsn",
    "AZURE_CONNECTION_STRING": "Account=0123456789-connection",
    "BLOB_SAS": "sv=0123456789-sas",
    "NOTHING_SAID": "0123456789/nothing+said",
}
ENV = ",".join(f"{name}={value}" for name, value in SECRETS.items())
LOUD = """
import os
def handle(inputs):
    value = os.environ["NOTHING_SAID"]
    print("seen", value, flush=True)
    if not inputs.is_empty():
        raise ValueError(f"cannot use {value}")
"""
"""Users' code that says one of them wherever it can."""
