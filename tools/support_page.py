"""The table of tests/support/README.md: what each module that tests share gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from page_parts import ROOT, table

SUPPORT: Final = ROOT / "tests" / "support"
SUBJECTS: Final = {
    "a server, or a part of one": "harness serving in_process_host walks pods routers proxies "
    "container two_hosts vllm_server added installed_engine queried_engine",
    "a double": "buffering endpoints idle_workers scripted_model scripted_workers service_bench "
    "simulated_engines http_double hub_server s3_server faulty_proxy cutting_proxy endpoint_picker "
    "frames_model obedient obedient_model ranking_model",
    "requests and answers": "asking streams front_streams failing_streams event_stream "
    "running_response mixed_chats openai_bodies openai_corpus pooling_corpus triton_bodies "
    "lmi_answers lmi_differences lmi_kinds explained traffic steady_load bystanders",
    "harm": "attackers doors hostile hostile_clients more_faults planted_faults",
    "run by the engine's interpreter": "unread_arguments vllm_arguments vllm_copies vllm_fields "
    "vllm_grammars vllm_images vllm_interpreter vllm_layout vllm_refusals "
    "media_process releases compiling",
    "documents and records": "chaos_report fleet_report measured pages published_logs manifests "
    "facts browser certificates",
    "the run of the tests": "left_behind left_out places ports processes sharing shell spending "
    "waiting",
}
"""What modules are for, and their names."""


def support() -> Iterator[str]:
    """Yield the lines of the table: the first line of each module, by subject.

    Raises:
        KeyError: a module has no subject, or a name has no module.
    """
    subjects = {name: subject for subject, names in SUBJECTS.items() for name in names.split()}
    modules = {each.stem for each in SUPPORT.glob("*.py")} - {"__init__"}
    if wrong := modules ^ subjects.keys():
        raise KeyError(f"tools/support_page.py: a subject is missing, or the module: {wrong}")
    rows = (
        (subject, f"`{name}.py`", _about((SUPPORT / f"{name}.py").read_text("utf-8")))
        for name, subject in subjects.items()
    )
    yield from table(("subject", "module", "what it gives"), rows)


def _about(source: str) -> str:
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
