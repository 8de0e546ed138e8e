"""The folder that `kubectl apply -k` takes for one model.

Kustomize puts its suffix into the names that it knows. References in custom kinds are none of
them, so they are written in full.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lmi_backend.deploy.filling import STORE, Value, fill, scalar, texts_below, yaml_text
from lmi_backend.front_end_settings import PORT
from lmi_backend.printable import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.deploy.served import Served


def kubernetes(served: Served) -> dict[str, str]:
    extras = _extras(served)
    others = [name for name in extras if "/" not in name]
    return extras | {
        "kustomization.yaml": _kustomization(served, others),
        "needs.yaml": _patch(served),
        **{f"base/{name}": text for name, text in texts_below("base").items()},
        **{f"model/{name}": text for name, text in served.texts.items()},
    }


def _extras(served: Served) -> dict[str, str]:
    # The name of another may begin with the name of this one. Kubernetes cuts names of pods after
    # 58 characters and adds five, so a long one has a single part after its Deployment's.
    pods = f'pod=~"{served.full_name}-[a-z0-9]+(-[a-z0-9]+)?"'
    bucket = "".join(
        f"\n            - name: {name}\n              value: {json.dumps(value)}"
        for name, value in served.variables.items()
        if name.startswith("AWS_")
    )
    values = {
        "full_name": served.full_name,
        "name": served.name,
        "pods": f'namespace="{served.namespace}",{pods}' if served.namespace else pods,
        "replicas": served.replicas,
        "most_replicas": served.most_replicas,
        "cache_size": served.cache_size,
        "claim": served.cache_claim,
        "image": scalar(served.image),
        "account": "".join(
            f"\n      {key}: {scalar(word)}" for key, word in served.account.items()
        ),
        "model": json.dumps(served.remote_model),
        "revision": json.dumps(served.revision),
        "bucket": bucket,
    }
    names = [word for word in ("monitor", "keda", "gateway") if word in served.extras]
    files = {f"{name}.yaml": fill(f"extras/{name}.yaml", values) for name in names}
    if "cache" not in served.extras:
        return files
    # A folder that is applied, and waited for, before the servers are.
    parts = ["claim.yaml", *(["job.yaml"] if served.remote_model else [])]
    files |= {f"download/{name}": fill(f"extras/{name}", values) for name in parts}
    return files | {"download/kustomization.yaml": yaml_text(_whole(served, {"resources": parts}))}


def _whole(served: Served, fields: dict[str, Value]) -> dict[str, Value]:
    namespace = served.namespace
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "nameSuffix": f"-{served.name}",
        **fields,
        **({"namespace": namespace} if namespace else {}),
    }


def _patch(served: Served) -> str:
    needs = served.needs
    pod: dict[str, Value] = {
        **served.account,
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
            "replicas": None if "keda" in served.extras else served.replicas,
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
    if "lora" in served.extras:
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
    if "lora" in served.extras:
        adapters: dict[str, Value] = {"claimName": "adapters", "readOnly": True}
        volumes.append({"name": "adapters", "persistentVolumeClaim": adapters})
    return volumes


def _kustomization(served: Served, others: Sequence[str]) -> str:
    label: dict[str, Value] = {
        "pairs": {"app.kubernetes.io/instance": served.name},
        "includeSelectors": True,
        "includeTemplates": True,
    }
    fields: dict[str, Value] = {
        "labels": [label],
        "resources": ["base", *others],
        "patches": [{"path": "needs.yaml"}],
    }
    if served.place and not served.claim:
        files: list[Value] = [f"model/{name}" for name in sorted(served.texts)]
        fields["configMapGenerator"] = [{"name": "model", "files": files}]
    return yaml_text(_whole(served, fields))
