"""The folder that `kubectl apply -k` takes for one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.deploy.filling import STORE
from lmi_backend.deploy.yaml_text import Value, yaml_text
from lmi_backend.front_end_settings import PORT
from lmi_backend.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.deploy.served import Served


def patch(served: Served) -> str:
    """Return the strategic merge patch that gives the base what the model needs."""
    needs = served.needs
    pod: dict[str, Value] = {
        **served.placement.of_pod(served.labels),
        "terminationGracePeriodSeconds": needs.grace_seconds,
        "containers": [_container(served)],
        "volumes": _volumes(served),
    }
    deployment: dict[str, Value] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "lmi-backend"},
        "spec": {
            # With KEDA, their number is KEDA's.
            "replicas": None if "keda" in served.placement.extras else served.replicas,
            "progressDeadlineSeconds": needs.progress_seconds,
            "template": {"spec": pod},
        },
    }
    return f"# One pod has what the plan of {served.title} needs.\n{yaml_text(deployment)}"


def _container(served: Served) -> dict[str, Value]:
    needs = served.needs
    least: dict[str, Value] = {"cpu": str(needs.cpus), "memory": f"{needs.memory // GIB}Gi"}
    most: dict[str, Value] = {"memory": f"{needs.memory // GIB}Gi"}
    if served.remote_model and needs.storage and not served.cache_claim:
        least["ephemeral-storage"] = f"{needs.storage // GIB}Gi"
    if needs.devices:
        least["nvidia.com/gpu"] = most["nvidia.com/gpu"] = needs.devices
    serve: list[Value] = [
        "serve",
        *served.words,
        "--host=0.0.0.0",
        f"--port={PORT}",
        f"--drain-timeout={needs.request_seconds}",
        "--verbose",
    ]
    container: dict[str, Value] = {"name": "lmi-backend", "image": served.image, "args": serve}
    if served.variables:
        # Kubernetes puts other variables in for $(NAME), but not for $$(NAME).
        container["env"] = [
            {"name": name, "value": value.replace("$(", "$$(")}
            for name, value in served.variables.items()
        ]
    container["startupProbe"] = {"failureThreshold": needs.startup_failures}
    if mounts := _mounts(served):
        container["volumeMounts"] = mounts
    return container | {"resources": {"requests": least, "limits": most}}


def _mounts(served: Served) -> list[Value]:
    mounts: list[Value] = []
    if served.place != STORE:
        mounts.append({"mountPath": STORE, "$patch": "delete"})
        if served.place:
            mounts.append({"name": "model", "mountPath": served.place, "readOnly": True})
    if "lora" in served.placement.extras:
        mounts.append({"name": "adapters", "mountPath": "/adapters", "readOnly": True})
    return mounts


def _volumes(served: Served) -> list[Value]:
    shared = f"{served.needs.shared_memory // GIB}Gi"
    volumes: list[Value] = [{"name": "shm", "emptyDir": {"sizeLimit": shared}}]
    if not served.place:
        volumes.append({"name": "model", "$patch": "delete"})
    elif served.claim:
        claim: dict[str, Value] = {"claimName": served.claim}
        volumes.append({"name": "model", "configMap": None, "persistentVolumeClaim": claim})
    if served.cache_claim:
        cache: dict[str, Value] = {"claimName": served.cache_claim}
        volumes.append({"name": "cache", "emptyDir": None, "persistentVolumeClaim": cache})
    if "lora" in served.placement.extras:
        adapters: dict[str, Value] = {"claimName": "adapters", "readOnly": True}
        volumes.append({"name": "adapters", "persistentVolumeClaim": adapters})
    return volumes


def kustomization(served: Served, others: Sequence[str]) -> str:
    """Return the kustomization.yaml that joins base, patch, `others` and the model's files."""
    label: dict[str, Value] = {
        "pairs": {"app.kubernetes.io/instance": served.name},
        "includeSelectors": True,
        "includeTemplates": True,
    }
    whole: dict[str, Value] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "nameSuffix": f"-{served.name}",
        "labels": [label],
        "resources": ["base", *others],
        "patches": [{"path": "needs.yaml"}],
    }
    if served.placement.namespace:
        whole["namespace"] = served.placement.namespace
    if served.place and not served.claim:
        files: list[Value] = [f"model/{name}" for name in sorted(served.texts)]
        whole["configMapGenerator"] = [{"name": "model", "files": files}]
    return yaml_text(whole)
