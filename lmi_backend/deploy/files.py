"""The files of a deployment: templates with what a model needs put in."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from lmi_backend.deploy.needs import (
    GIB,
    LEAVE_SECONDS,
    LIVE_FAILURES,
    LIVE_PERIOD,
    PORT,
    PROBE_SECONDS,
    STARTUP_PERIOD,
    USER,
    Needs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEMPLATES: Final = Path(__file__).parent / "templates"
REPOSITORY_IMAGE: Final = "lmi-backend:cpu"
"""Of deploy/ in the repository, which anybody can build."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model and how it is to be run."""

    name: str
    """Of the model, in letters that Kubernetes takes."""
    image: str
    needs: Needs
    replicas: int = 2
    """Servers."""
    folder: Path = Path("/opt/ml/model")
    """Its LMI folder on the machine of compose and systemd."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Name and content of the files of that folder, where a ConfigMap takes them."""
    claim: str = ""
    """A PersistentVolumeClaim that holds the folder, in place of a ConfigMap."""


def base_files() -> dict[str, str]:
    """Return the Kustomize base, which knows no model."""
    values = _values(Needs(), REPOSITORY_IMAGE)
    folder = _TEMPLATES / "kubernetes"
    return {path.name: _fill(path, values) for path in sorted(folder.iterdir())}


def kubernetes(served: Served) -> dict[str, str]:
    """Return a folder for `kubectl apply -k`: path to text."""
    needs = served.needs
    values = _values(needs, served.image) | {
        "name": served.name,
        "replicas": str(served.replicas),
        "devices": f"\n              nvidia.com/gpu: {needs.devices}" if needs.devices else "",
        "why": f"What the plan of {served.name} takes of one node, a pod.",
        "model": "",
        "claim": "",
    }
    if served.claim:
        claim = (
            "\n        - name: model\n          configMap: null\n          persistentVolumeClaim:"
        )
        values["claim"] = f"{claim}\n            claimName: {served.claim}"
    else:
        lines = [f"      - model/{name}" for name in sorted(served.texts)]
        head = ["configMapGenerator:", "  - name: model", "    files:"]
        values["model"] = "\n".join([*head, *lines])
    model = _TEMPLATES / "model"
    files = {path.name: f"{_fill(path, values).rstrip()}\n" for path in sorted(model.iterdir())}
    files |= {f"base/{name}": text for name, text in base_files().items()}
    return files | {f"model/{name}": text for name, text in served.texts.items()}


def compose(served: Served) -> dict[str, str]:
    """Return the file for `docker compose up`."""
    gpus = ""
    if served.needs.devices:
        gpus = f"\n    gpus:\n      - count: {served.needs.devices}\n        capabilities: [gpu]"
    folder = json.dumps(str(served.folder).replace("$", "$$"))
    return _compose(served, folder, gpus, "docker compose up")


def repository_compose() -> dict[str, str]:
    """Return deploy/compose.yaml, which builds its image and serves what MODEL names."""
    served = Served(name="model", image=REPOSITORY_IMAGE, needs=Needs())
    usage = "MODEL=$PWD/my-model docker compose -f deploy/compose.yaml up\n#\n"
    usage += "# With GPUs: `target: vllm` (or trtllm), `image: lmi-backend:vllm`, and `gpus: all`."
    build = "\n    build:\n      context: ..\n      target: cpu"
    return _compose(served, "${MODEL:?the LMI folder to serve}", "", usage, build)


def _compose(
    served: Served, model: str, devices: str, usage: str, build: str = ""
) -> dict[str, str]:
    values = _values(served.needs, served.image)
    values |= {"model": model, "devices": devices, "usage": usage, "build": build}
    values |= {"mount": f"/opt/ml/model/{served.name}"}
    values |= {"shm": f"{served.needs.shared_memory // GIB}gb"}
    return {"compose.yaml": _fill(_TEMPLATES / "compose.yaml", values)}


def systemd(served: Served) -> dict[str, str]:
    """Return a unit that serves with this installation."""
    values = _values(served.needs, served.image) | {
        "name": f"lmi-backend-{served.name}",
        "model": served.name,
        "folder": _unit_word(str(served.folder)),
        "command": _unit_word(str(Path(sys.executable).parent / "lmi-backend")),
    }
    return {f"lmi-backend-{served.name}.service": _fill(_TEMPLATES / "systemd.service", values)}


TARGETS: Final = {"kubernetes": kubernetes, "compose": compose, "systemd": systemd}


def _values(needs: Needs, image: str) -> dict[str, str]:
    return {
        "user": str(USER),
        "port": str(PORT),
        "image": image,
        "leave_seconds": str(LEAVE_SECONDS),
        "grace_seconds": str(needs.grace_seconds),
        "stop_seconds": str(needs.stop_seconds),
        "drain_seconds": str(needs.request_seconds),
        "load_seconds": str(needs.load_seconds),
        "startup_period": str(STARTUP_PERIOD),
        "startup_failures": str(needs.startup_failures),
        "probe_timeout": str(PROBE_SECONDS),
        "live_period": str(LIVE_PERIOD),
        "live_failures": str(LIVE_FAILURES),
        "cpus": str(needs.cpus),
        "memory": f"{needs.memory // GIB}Gi",
        "shm": f"{needs.shared_memory // GIB}Gi",
    }


def _fill(path: Path, values: Mapping[str, str]) -> str:
    return Template(path.read_text(encoding="utf-8")).substitute(values)


def _unit_word(text: str) -> str:
    """Write a word for a unit, in which no variable or specifier is read."""
    return json.dumps(text.replace("%", "%%").replace("$", "$$"), ensure_ascii=False)
