"""What is recorded of vLLM is what the installed one says."""

import json
from pathlib import Path
from typing import Any

from lmi_backend.options.signature import records
from lmi_backend.plan.memory_options import UNCOUNTED
from tests.support.places import ROOT


def test_the_record_is_what_vllm_says(vllm_interpreter: Any, tmp_path: Path) -> None:
    script, output = ROOT / "lmi_backend/engines/vllm/own_arguments.py", tmp_path / "vllm.json"
    vllm_interpreter.run(str(script), str(output))
    recorded = dict(next(iter(records("vllm").values())))
    assert json.loads(output.read_bytes()) == recorded, "tools/record_signature.py"


def test_what_no_plan_counts_is_an_argument_of_a_release() -> None:
    assert not UNCOUNTED - {name for each in records("vllm").values() for name in each["arguments"]}
