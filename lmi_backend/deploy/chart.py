"""The folder that `helm install` takes for one model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lmi_backend import __version__
from lmi_backend.deploy.filling import FOLDER, fill, texts_below
from lmi_backend.deploy.yaml_text import Value, field, scalar
from lmi_backend.printable import GIB

if TYPE_CHECKING:
    from lmi_backend.deploy.served import Served


def helm(served: Served) -> dict[str, str]:
    """Return a chart: path to text."""
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
    needs, placement = served.needs, served.placement
    is_downloaded = served.remote_model and needs.storage
    extras = ("monitor", "keda", "gateway", "lora", "cache")
    words: dict[str, Value] = {
        **{each: each in placement.extras for each in extras},
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
        "service_account": placement.service_account,
        "topology": placement.topology,
        "cache_claim": placement.cache_claim,
        "cache_size": served.cache_size,
        "download": served.remote_model,
        "revision": served.revision,
    }
    blocks: dict[str, Value] = {
        "environment": dict(served.variables),
        "node_selector": dict(placement.node_selector),
        "tolerations": [each.fields for each in placement.tolerations],
    }
    texts = {name: scalar(value) for name, value in words.items()}
    texts |= {name: field(value) for name, value in blocks.items()}
    return fill("chart/values.yaml", {"title": served.title, **texts})
