"""Print which fast paths a vLLM has: `python -m lmi_backend.engines.vllm.inside.doctor`.

It reads vLLM's source and imports nothing of it. What only a trial can tell, an engine finds out
when it starts.
"""

from __future__ import annotations

import json
import sys

from lmi_backend.engines.vllm.inside.present import missing_of
from lmi_backend.engines.vllm.inside.table import NEEDS, PATHS
from lmi_backend.options.signature import installed_version


def main() -> None:
    """Write the table as JSON to the standard output."""
    lacking = missing_of(PATHS)
    found = [
        {
            "name": fast_path.name,
            "purpose": fast_path.purpose,
            "missing": lacking[fast_path.name],
            "public_way": fast_path.public_way,
            "cost": fast_path.cost,
        }
        for fast_path in PATHS
    ]
    needs = [{"name": name, "missing": names} for name, names in missing_of(NEEDS).items()]
    version = installed_version("vllm", sys.executable)
    json.dump({"version": version, "fast_paths": found, "needs": needs}, sys.stdout)


if __name__ == "__main__":
    main()
