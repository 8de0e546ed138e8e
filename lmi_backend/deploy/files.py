"""The files of a deployment, for each of those that run one; for Helm a chart of one model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from lmi_backend import __version__
from lmi_backend.deploy.filling import FOLDER, Value, field, fill, scalar, texts_below
from lmi_backend.deploy.kubernetes import kubernetes
from lmi_backend.deploy.served import EXTRAS, Served
from lmi_backend.printable import GIB


def helm(served: Served) -> dict[str, str]:
    about = {
        "name": served.full_name,
        "description": scalar(f"{served.title} on NVIDIA Triton with lmi-backend"),
        "version": __version__,
    }
    # A quote would end the word of the shell that it is in.
    title = {"shown": served.title, "quoted": json.dumps(served.title).replace("'", "'\\''")}
    templates = texts_below("chart/templates")
    templates["NOTES.txt"] = fill("chart/templates/NOTES.txt", title)
    return {
        "Chart.yaml": fill("chart/Chart.yaml", about),
        "values.yaml": _values(served),
        "values.schema.json": (FOLDER / "chart/values.schema.json").read_text("utf-8"),
        **{f"templates/{name}": text for name, text in templates.items()},
        **{f"model/{name}": text for name, text in served.texts.items()},
    }


def _values(served: Served) -> str:
    needs = served.needs
    is_downloaded = served.remote_model and needs.storage
    words: dict[str, Value] = {
        **{each: each in served.extras for each in EXTRAS},
        "replicas": served.replicas,
        "most_replicas": served.most_replicas,
        "image": served.image,
        "path": served.place,
        "claim": served.claim,
        "gpus": needs.devices,
        "cpus": needs.cpus,
        "memory": f"{needs.memory // GIB}Gi",
        "shm": f"{needs.shared_memory // GIB}Gi",
        "disk": f"{needs.storage // GIB}Gi" if is_downloaded else "",
        "start_seconds": needs.start_seconds,
        "drain_seconds": needs.request_seconds,
        "service_account": served.service_account,
        "cache_claim": served.given_cache,
        "cache_size": served.cache_size,
        "download": served.remote_model,
        "revision": served.revision,
    }
    texts = {name: scalar(value) for name, value in words.items()}
    texts |= {"title": served.title, "environment": field(dict(served.variables))}
    return fill("chart/values.yaml", texts)


_VOLUME: Final = """
      - type: bind
        source: {}
        target: {}
        read_only: true"""


def compose(served: Served) -> dict[str, str]:
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
    variables = (_unit_value(f"{name}={value}") for name, value in served.variables.items())
    values = {
        "name": served.full_name,
        "model": served.title,
        "words": f" {_unit_word(served.place)}" if served.place else "",
        "variables": "".join(f"Environment={value}\n" for value in variables),
        "command": _unit_word(str(Path(sys.executable).parent / "lmi-backend")),
        "drain_seconds": served.needs.request_seconds,
        "stop_seconds": served.needs.stop_seconds,
    }
    return {f"{served.full_name}.service": fill("systemd.service", values)}


def prometheus(*, has_pods: bool) -> dict[str, str]:
    """Return a job that scrapes the server, and the alerts."""
    texts = texts_below("prometheus")
    job = texts["pods.yml" if has_pods else "host.yml"]
    return {"prometheus.yml": job, "prometheus-alerts.yml": texts["alerts.yml"]}


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
