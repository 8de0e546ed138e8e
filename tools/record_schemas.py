"""Record the schemas of others that tests check manifests with, from clones of their projects.

    python tools/record_schemas.py CLONES

CLONES holds the git repositories that `SOURCES` names, as OWNER/NAME or OWNER+NAME/repo. Texts that
explain are left out, and what is the same in several places stands once, below "shared".
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
RECORD: Final = ROOT / "tests" / "data" / "schemas.json"
SOURCES: Final = {
    "kubernetes-sigs/lws": ("config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",),
    "kubernetes-sigs/gateway-api-inference-extension": (
        "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",
    ),
    "kubernetes-sigs/gateway-api": (
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
        "config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
    ),
    "kedacore/keda": ("config/crd/bases/keda.sh_scaledobjects.yaml",),
    "prometheus-operator/prometheus-operator": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    ),
    "kserve/kserve": (
        "config/crd/full/serving.kserve.io_servingruntimes.yaml",
        "config/crd/full/serving.kserve.io_inferenceservices.yaml",
    ),
    "compose-spec/compose-spec": ("schema/compose-spec.json",),
}
"""Repository to files; all of them under the Apache License 2.0."""
_WORTH: Final = 120
"""Characters from which on it is worth a reference."""


def main(words: list[str]) -> int:
    if len(words) != 1:
        sys.stderr.write("usage: record_schemas.py CLONES\n")
        return 2
    schemas: dict[str, Any] = {}
    sources = []
    for name, files in SOURCES.items():
        clone = _clone(Path(words[0]), name)
        commit = _git(clone, "rev-parse", "HEAD").strip()
        for file in files:
            sources.append(f"https://github.com/{name}/blob/{commit}/{file}")
            schemas |= _schemas(_git(clone, "show", f"HEAD:{file}"), file)
    shared = _Shared(schemas)
    record = {
        "license": "Apache-2.0, as the projects they are from; without their descriptions",
        "sources": sources,
        "shared": shared.definitions(),
        "schemas": {name: shared.shorten(schema) for name, schema in sorted(schemas.items())},
    }
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    # A line for each, so that a difference can be read.
    RECORD.write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")
    return 0


def _clone(folder: Path, name: str) -> Path:
    plain = folder / name
    return plain if plain.is_dir() else folder / name.replace("/", "+") / "repo"


def _git(clone: Path, *words: str) -> str:
    command = ["git", "-C", str(clone), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _schemas(text: str, file: str) -> dict[str, Any]:
    if file.endswith(".json"):
        name = Path(file).stem
        schema = _plain(json.loads(text.replace('"#/', f'"#/schemas/{name}/')))
        # It would be another document's.
        del schema["$id"]
        return {name: schema}
    definition = yaml.load(text, yaml.CSafeLoader)["spec"]
    return {
        f"{definition['group']}/{version['name']} {definition['names']['kind']}": _plain(
            version["schema"]["openAPIV3Schema"]
        )
        for version in definition["versions"]
        if version["served"]
    }


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        kept = {name: _plain(value) for name, value in node.items()}
        return {
            name: value
            for name, value in kept.items()
            if name != "description" or not isinstance(value, str)
        }
    return [_plain(each) for each in node] if isinstance(node, list) else node


class _Shared:
    """Schemas that stand in several places."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._seen: Counter[str] = Counter()
        for schema in schemas.values():
            self._count(schema)
        several = (text for text, count in self._seen.items() if count > 1)
        self._names = {text: str(number) for number, text in enumerate(several)}

    def definitions(self) -> dict[str, Any]:
        """Return them by the name they are given."""
        return {name: self._inside(json.loads(text)) for text, name in self._names.items()}

    def shorten(self, node: Any) -> Any:
        """Return a schema with references to them."""
        if isinstance(node, dict) and (name := self._names.get(_text(node))):
            return {"$ref": f"#/shared/{name}"}
        return self._inside(node)

    def _inside(self, node: Any) -> Any:
        if isinstance(node, dict):
            return {name: self.shorten(value) for name, value in node.items()}
        return [self.shorten(each) for each in node] if isinstance(node, list) else node

    def _count(self, node: Any) -> None:
        if isinstance(node, dict) and "type" in node and len(text := _text(node)) > _WORTH:
            self._seen[text] += 1
            if self._seen[text] > 1:
                return
        values = node.values() if isinstance(node, dict) else node
        for value in values if isinstance(node, dict | list) else ():
            self._count(value)


def _text(node: Any) -> str:
    return json.dumps(node, separators=(",", ":"), sort_keys=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
