"""What is read of vLLM's arguments without importing it is what vLLM declares."""

import json
from pathlib import Path
from typing import Any

from lmi_backend.options.class_fields import class_fields
from lmi_backend.options.installation import locate
from lmi_backend.options.package_source import Package
from lmi_backend.options.signature import installed_signature
from lmi_backend.plan.memory_fields import MEANINGS
from tests.support.places import ENGINE_PYTHON, ROOT


def test_the_static_reading_is_that_of_the_installed_vllm(
    vllm_interpreter: Any, tmp_path: Path
) -> None:
    """The static reading finds exactly the fields of the dataclass; the record is of today."""
    tool, output = str(ROOT / "tools" / "record_signature.py"), tmp_path / "vllm.json"
    vllm_interpreter.run(tool, "vllm", "--output", str(output))
    today = json.loads(output.read_text(encoding="utf-8"))
    found = installed_signature("vllm", str(ENGINE_PYTHON))
    assert found is not None
    assert list(found.arguments) == list(today["arguments"])
    assert found.version == today["version"]
    assert today["arguments"]["gpu_memory_utilization"] == ["float", "0.92"]
    recorded = ROOT / "lmi_backend" / "options" / "signatures" / "vllm.json"
    assert today == json.loads(recorded.read_text(encoding="utf-8")), "record_signature.py vllm"


def test_each_field_of_its_configuration_is_judged_for_memory() -> None:
    package = Package(locate("vllm", str(ENGINE_PYTHON))[0])
    module = package.module("config")
    assert module is not None
    for name, judged in MEANINGS.items():
        fields = set(class_fields(name, module, package))
        assert (name, fields ^ set(judged)) == (name, set())
