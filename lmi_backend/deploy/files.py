"""The files of a deployment, for each of those that run one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.deploy.chart import helm
from lmi_backend.deploy.filling import fill
from lmi_backend.deploy.kubernetes import kubernetes
from lmi_backend.printable import GIB

if TYPE_CHECKING:
    from lmi_backend.deploy.served import Served

_VOLUME: Final = """
      - type: bind
        source: {}
        target: {}
        read_only: true"""


def compose(served: Served) -> dict[str, str]:
    """Return the file for `docker compose up`."""
    needs = served.needs
    gpus = f"\n    gpus:\n      - count: {needs.devices}\n        capabilities: [gpu]"
    folder = _compose_word(served.mount)
    variables = (_compose_word(f"{name}={value}") for name, value in served.variables.items())
    values = {
        "image": served.image,
        "words": "".join(f"{word}, " for word in served.words),
        "drain_seconds": needs.request_seconds,
        "start_seconds": needs.start_seconds,
        "stop_seconds": needs.stop_seconds,
        "shm": f"{needs.shared_memory // GIB}gb",
        "volumes": _VOLUME.format(folder, served.place) if served.place else "",
        "variables": "".join(f"\n      - {word}" for word in variables),
        "devices": gpus if needs.devices else "",
    }
    return {"compose.yaml": fill("compose.yaml", values)}


def systemd(served: Served) -> dict[str, str]:
    """Return a unit that serves with this installation."""
    variables = (_unit_value(f"{name}={value}") for name, value in served.variables.items())
    values = {
        "name": served.full_name,
        "model": served.title,
        "words": f" {_unit_word(str(served.folder))}" if served.folder else "",
        "variables": "".join(f"Environment={value}\n" for value in variables),
        "command": _unit_word(str(Path(sys.executable).parent / "lmi-backend")),
        "drain_seconds": served.needs.request_seconds,
        "stop_seconds": served.needs.stop_seconds,
    }
    return {f"{served.full_name}.service": fill("systemd.service", values)}


TARGETS: Final = {"kubernetes": kubernetes, "helm": helm, "compose": compose, "systemd": systemd}


def _compose_word(text: str) -> str:
    """Write an argument for Compose, in which no variable is read."""
    return json.dumps(text.replace("$", "$$"), ensure_ascii=False)


def _unit_word(text: str) -> str:
    """Write an argument of a unit's command, in which no variable or specifier is read."""
    return _unit_value(text.replace("$", "$$"))


def _unit_value(text: str) -> str:
    """Write a value for a unit, in which no specifier is read; a dollar is one there."""
    return json.dumps(text.replace("%", "%%"), ensure_ascii=False)
