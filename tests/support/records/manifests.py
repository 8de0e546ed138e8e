"""Manifests as Kustomize and Helm build them, and what the projects say of their kinds."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from tests.support.run.places import ROOT, TESTS

KUBERNETES = "1.37"
"""Whose schemas are taken; the newest that kubernetes-validate has."""
KUBECTL = Path(sys.executable).with_name("kubectl")
HELM = Path(sys.executable).with_name("helm")
OVERLAYS = ROOT / "deploy" / "kubernetes" / "overlays"


def built(folder: Path) -> list[dict[str, Any]]:
    """Return the objects of a folder; nothing is asked of a cluster."""
    words = [str(KUBECTL), "kustomize", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm; nothing is asked of a cluster."""
    return subprocess.run([HELM, *words], capture_output=True, text=True, check=False)


def rendered(chart: Path, release: str, *words: str) -> list[dict[str, Any]]:
    done = helm("template", release, chart, *words)
    assert (done.returncode, done.stderr) == (0, "")
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def check(thing: dict[str, Any]) -> None:
    """Raise jsonschema.ValidationError if the schema of its kind does not have it so.

    As a server that is asked strictly, unknown fields are refused.
    """
    schema = _record()["schemas"].get(f"{thing['apiVersion']} {thing['kind']}")
    if schema is None:
        kubernetes_validate.validate(thing, KUBERNETES, strict=True)
    else:
        _check(thing, schema)


def check_compose(thing: dict[str, Any]) -> None:
    """Raise jsonschema.ValidationError if a Compose file may not be so."""
    _check(thing, _record()["schemas"]["compose-spec"])


def pods(things: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield metadata and spec of each pod that some objects make."""
    for thing in things:
        yield from _pods(thing)


def _pods(node: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    if isinstance(node, dict):
        if "containers" in node.get("spec", {}):
            yield node.get("metadata", {}), node["spec"]
            return
        for value in node.values():
            yield from _pods(value)


def container(spec: dict[str, Any]) -> dict[str, Any]:
    (only,) = spec["containers"]
    found: dict[str, Any] = only
    return found


def option(spec: dict[str, Any], name: str) -> float:
    """Return a number among the arguments of its command."""
    given = dict(word.split("=", 1) for word in container(spec)["args"] if "=" in word)
    return float(given[name])


def _check(thing: dict[str, Any], schema: dict[str, Any]) -> None:
    record = _record()
    validator = jsonschema.Draft7Validator(
        {"shared": record["shared"], **schema} | {"schemas": record["schemas"]}
    )
    validator.validate(thing)


@cache
def _record() -> dict[str, Any]:
    record = json.loads((TESTS / "data" / "schemas.json").read_text("utf-8"))
    _close(record["shared"])
    _close({name: one for name, one in record["schemas"].items() if name != "compose-spec"})
    found: dict[str, Any] = record
    return found


def _close(node: Any) -> None:
    """Refuse fields that a schema does not name, where it names some."""
    if isinstance(node, list):
        for each in node:
            _close(each)
    elif isinstance(node, dict):
        is_open = node.get("x-kubernetes-preserve-unknown-fields")
        if (
            isinstance(node.get("properties"), dict)
            and node.get("type") == "object"
            and not is_open
        ):
            node.setdefault("additionalProperties", False)
        if node.get("x-kubernetes-int-or-string"):
            node["type"] = ["integer", "string"]
        for each in node.values():
            _close(each)
