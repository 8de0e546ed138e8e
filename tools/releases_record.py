"""The releases of vLLM that the tests have run on, as the package has them.

`make compat` writes tests/data/compat.json, `make docs` makes lmi_backend/options/releases.json of
it. What a release failed is in docs/engines.md; a release that passed no test has not run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from compat_page import RESULTS

from lmi_backend.options.releases import RECORD, numbers

PATH = RECORD


def releases_record() -> str:
    """Return the record, as the package has it."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return json.dumps({"vllm": releases_run(results)}, indent=1) + "\n"


def releases_run(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the releases of vLLM with a test that passed, the oldest first."""
    ran = {
        found["version"].partition("+")[0]
        for name, found in results.items()
        if name.startswith("vllm") and any(tests["passed"] for tests in found["tests"].values())
    }
    return sorted(ran, key=numbers)
