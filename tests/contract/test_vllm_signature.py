"""What is recorded of vLLM is what the installed one says."""

import json
from pathlib import Path
from typing import Any

from lmi_backend.options.signature import records
from lmi_backend.plan.memory_options import MEANINGS
from tests.support.places import ROOT


def test_the_record_is_what_vllm_says(vllm_interpreter: Any, tmp_path: Path) -> None:
    script, output = ROOT / "lmi_backend/engines/vllm/own_arguments.py", tmp_path / "vllm.json"
    vllm_interpreter.run(str(script), str(output))
    recorded = dict(next(iter(records("vllm").values())))
    assert json.loads(output.read_bytes()) == recorded, "tools/record_signature.py"


def test_each_field_of_its_configuration_is_judged_for_memory(
    vllm_interpreter: Any, tmp_path: Path
) -> None:
    script = tmp_path / "fields.py"
    script.write_text(
        "import inspect, json, sys\n"
        "from vllm import config\n"
        "print(json.dumps({name: [*inspect.signature(getattr(config, name)).parameters]"
        " for name in json.load(sys.stdin)}))\n",
        encoding="utf-8",
    )
    output = vllm_interpreter.run(str(script), data=json.dumps([*MEANINGS]).encode())
    for name, fields in json.loads(output).items():
        public = {field for field in fields if not field.startswith("_")}
        assert (name, public ^ set(MEANINGS[name])) == (name, set())
