"""What importing does, and what the package shows."""

import pkgutil
import subprocess
import sys

import lmi_backend
from lmi_backend import errors
from lmi_backend.errors import LmiError, OptionError, RequestError
from lmi_backend.generation import Delta

# These need the interpreter they are made for.
ELSEWHERE = ("lmi_backend.triton", "lmi_backend.engines.vllm")
MODULES = [
    module.name
    for module in pkgutil.walk_packages(lmi_backend.__path__, "lmi_backend.")
    if not module.name.startswith(ELSEWHERE)
]

PROBE = """
import importlib, os, sys, threading
before = dict(os.environ)
for name in sys.argv[1:]:
    importlib.import_module(name)
assert dict(os.environ) == before
assert threading.active_count() == 1
print(*sorted(sys.modules))
"""


def _imported(*modules: str) -> set[str]:
    command = [sys.executable, "-c", PROBE, *modules]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_importing_does_nothing_and_loads_no_engine() -> None:
    assert len(MODULES) > 40
    assert not _imported(*MODULES) & {"torch", "vllm", "transformers", "tritonclient"}


def test_options_plan_and_repository_need_the_standard_library_only() -> None:
    light = ("lmi_backend.options", "lmi_backend.plan", "lmi_backend.repository")
    modules = [name for name in MODULES if name.startswith(light)]
    assert not _imported(*modules) & {"numpy", "msgspec"}


def test_the_public_face_is_exact() -> None:
    assert lmi_backend.__all__ == sorted(lmi_backend.__all__)
    assert all(hasattr(lmi_backend, name) for name in lmi_backend.__all__)


def test_every_error_has_a_code_of_triton_and_stands_in_the_tree() -> None:
    codes = {"INTERNAL", "INVALID_ARG", "UNAVAILABLE", "CANCELLED"}
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, LmiError)]
    assert len(classes) > 10
    for error in classes:
        assert error.code in codes
        assert error.__name__ in str(errors.__doc__)


def test_errors_say_what_where_and_what_instead() -> None:
    wrong = OptionError("is bad", option="option.a", value="1", origin="f:3", accepted="2")
    assert str(wrong) == "f:3: option.a=1 is bad; accepted: 2"
    long = RequestError("is bad", field="inputs", value="x" * 500)
    assert len(str(long)) < 200


def test_merged_deltas_are_as_if_they_had_come_as_one() -> None:
    delta = Delta("a", 1, num_prompt_tokens=3)
    delta.merge(Delta("b", 2, "stop", "s", 3))
    assert delta == Delta("ab", 3, "stop", "s", 3)
