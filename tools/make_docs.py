"""Fill the parts of pages that are made from tables in the code; --check only compares.

python tools/make_docs.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import clients_page
import compat_page
import metrics_page
import options_page
import requests_page
import results_page
import run_clients
from commands_page import commands
from contents_page import contents
from engines_page import engines
from page_parts import MARK, ROOT, Makers, filled, table
from releases_record import PATH as RELEASES
from releases_record import releases_record

from lmi_backend.deploy.filling import texts_below
from lmi_backend.engines.vllm.fast_paths import COSTS
from lmi_backend.pool.diagnosis import CAUSES

DOCS = ROOT / "docs"
DEPLOY = ROOT / "deploy"


def main(arguments: list[str]) -> int:
    made = pages()
    stale = [path for path, text in made.items() if _read(path) != text]
    if "--check" in arguments:
        for path in stale:
            sys.stdout.write(f"{path.relative_to(ROOT)}: stale; run `make docs`\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path], encoding="utf-8")
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    return 0


def pages() -> dict[Path, str]:
    """Return each page and its text.

    Raises:
        SystemExit: no page has one of the parts that are made.
    """
    texts = {
        RELEASES: releases_record(),
        **{DEPLOY / "kubernetes/base" / name: text for name, text in texts_below("base").items()},
    }
    folders = (DOCS, ROOT / "benchmarks", ROOT / "tests" / "data")
    for page in (page for folder in folders for page in folder.rglob("*.md")):
        if "<!-- made: " in (text := _read(page)):
            texts[page] = filled(text, MAKERS)
    shown = {name for text in texts.values() for name in MARK.findall(text)}
    if lost := sorted(MAKERS.keys() - shown):
        raise SystemExit(f"no page has these parts: {', '.join(lost)}")
    return texts


def _fast_paths() -> Iterator[str]:
    yield from table(("name", "without it"), ((f"`{name}`", cost) for name, cost in COSTS.items()))


def _causes() -> Iterator[str]:
    """Yield what `serve` knows of failed starts: a cause, and what to do about it."""
    advice = (re.sub(r"(\\g<\w+>)+", "…", each) for _, each in CAUSES)
    yield from table(("cause", "what to do"), (each.partition(": ")[::2] for each in advice))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


MAKERS: Makers = {
    "causes": _causes,
    "clients": clients_page.clients,
    "commands": commands,
    "contents": contents,
    "engines": engines,
    "fast-paths": _fast_paths,
    "front-end-metrics": metrics_page.front_end_metrics,
    "members": requests_page.members,
    "metrics": metrics_page.metrics,
    "neutral-parameters": requests_page.neutral_parameters,
    "options": options_page.options,
    "parameters": requests_page.parameters,
    "paths": requests_page.paths,
    "programs": run_clients.programs,
    "questions": metrics_page.questions,
    "regimes": results_page.regimes,
    "server-releases": compat_page.server_releases,
    "tensors": requests_page.tensors,
    "triton-clients": clients_page.triton_clients,
    "unserved-paths": requests_page.unserved_paths,
    "vllm-metrics": metrics_page.vllm_metrics,
    "vllm-releases": compat_page.vllm_releases,
    "wire": requests_page.wire,
}
"""Name of a part of a page to what makes its lines."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
