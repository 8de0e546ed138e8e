"""Print which holds the installed vLLM has: `python -m lmi_backend.engines.vllm.inside.doctor`.

It reads vLLM's source and imports nothing of it. What only a trial can tell, an engine finds out
when it starts.
"""

from __future__ import annotations

import json
import sys

from lmi_backend.engines.vllm.inside.present import missing_of_holds, missing_of_needs
from lmi_backend.engines.vllm.inside.table import HOLDS
from lmi_backend.options.signature import installed_version


def main() -> None:
    """Write the table as JSON to the standard output."""
    lacking = missing_of_holds()
    holds = [
        {
            "name": hold.name,
            "purpose": hold.purpose,
            "missing": lacking[hold.name],
            "public_way": hold.public_way,
            "cost": hold.cost,
        }
        for hold in HOLDS
    ]
    needs = [{"name": name, "missing": names} for name, names in missing_of_needs().items()]
    version = installed_version("vllm", sys.executable)
    json.dump({"version": version, "holds": holds, "needs": needs}, sys.stdout)


if __name__ == "__main__":
    main()
