"""Further objects of Kubernetes for one model: scaling, a gateway, a cache and its Job.

Kustomize puts its suffix into the names that it knows. References in custom kinds are none of
them, so they are written in full.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from lmi_backend.deploy.filling import TEMPLATES, fill, values_of
from lmi_backend.deploy.needs import UNKNOWN_STORAGE
from lmi_backend.deploy.yaml_text import Value, indented, scalar, yaml_text
from lmi_backend.units import GIB

if TYPE_CHECKING:
    from lmi_backend.deploy.served import Served

PROMETHEUS: Final = "http://prometheus-operated.monitoring:9090"
GATEWAY_CLASS: Final = "istio"
WAITING: Final = "4"
"""Requests that wait for a pod, from which on KEDA starts another."""
KV_CACHE: Final = "0.8"
"""Share of the KV cache in use, from which on KEDA starts another pod."""
_MOST_REPLICAS: Final = 8


def extra_template(name: str, values: dict[str, str]) -> str:
    """Return the text of one of these objects."""
    return fill(TEMPLATES / "extras" / f"{name}.yaml", values)


def extra_files(served: Served) -> dict[str, str]:
    """Return the files of what --with names, by their names."""
    values = _values(served)
    chosen = (word for word in ("monitor", "keda", "gateway") if word in served.placement.extras)
    files = {f"{word}.yaml": extra_template(word, values) for word in chosen}
    if "cache" in served.placement.extras:
        files |= _download(served, values)
    return files


def most_replicas(served: Served) -> int:
    """Return how many pods KEDA may start."""
    return max(_MOST_REPLICAS, served.replicas)


def cache_size(served: Served) -> str:
    """Return the size of a claim for the model's downloads."""
    return f"{(served.needs.storage or UNKNOWN_STORAGE) // GIB}Gi"


def pods_of(deployment: str) -> str:
    """Return the label by which Prometheus finds the pods of a Deployment, and of no other.

    The name of another may begin with the name of this one. Kubernetes cuts names of pods after 58
    characters and adds five, so a long one has a single part after its Deployment's.
    """
    return f'pod=~"{deployment}-[a-z0-9]+(-[a-z0-9]+)?"'


def download_command(model: str, revision: str) -> str:
    """Return the command that downloads a model; both arguments are YAML already."""
    words = ", ".join(map(json.dumps, ("python3", "-m", "lmi_backend.fetch.download")))
    return f"[{words}, {model}, {revision}]"


def _values(served: Served) -> dict[str, str]:
    pods = pods_of(served.full_name)
    if served.placement.namespace:
        pods = f'namespace="{served.placement.namespace}",{pods}'
    labels = (f"{name}: {json.dumps(value)}" for name, value in served.labels.items())
    return values_of(served.needs, scalar(served.image)) | {
        "full_name": served.full_name,
        "selector_of_one": ", ".join(labels),
        "pods": pods,
        "prometheus": PROMETHEUS,
        "least_replicas": str(served.replicas),
        "most_replicas": str(most_replicas(served)),
        "waiting": WAITING,
        "kv_cache": KV_CACHE,
        "gateway_class": GATEWAY_CLASS,
        "picker": f"{served.full_name}-epp",
        "claim_name": "cache",
        "claim_annotations": "",
        "storage_class": "",
        "cache_size": cache_size(served),
        "job_name": "download",
        "job_annotations": "",
        "placement": indented(served.placement.of_pod({}, is_spread=False), 6),
        "download": download_command(*map(json.dumps, (served.remote_model, served.revision))),
        "bucket": _bucket(served),
        "claim": served.cache_claim,
    }


def _download(served: Served, values: dict[str, str]) -> dict[str, str]:
    """Return a folder that is applied, and waited for, before the servers are."""
    resources: list[Value] = ["claim.yaml"]
    files = {"download/claim.yaml": extra_template("claim", values)}
    if served.remote_model:
        resources.append("job.yaml")
        files["download/job.yaml"] = extra_template("job", values)
    whole: dict[str, Value] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "nameSuffix": f"-{served.name}",
        "resources": resources,
    }
    if served.placement.namespace:
        whole["namespace"] = served.placement.namespace
    return files | {"download/kustomization.yaml": yaml_text(whole)}


def _bucket(served: Served) -> str:
    names = (name for name in served.variables if name.startswith("AWS_"))
    entry = "\n            - name: {}\n              value: {}"
    return "".join(entry.format(name, json.dumps(served.variables[name])) for name in names)
