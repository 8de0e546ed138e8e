"""Where a name of vLLM is found that has moved."""

import ast
from pathlib import Path

import pytest

from lmi_backend.engines.vllm.inside.source import Source, problem_of_call

LAST_KNOWN = "vllm.entrypoints.launchers.app"
USED = {
    "entrypoints/openai/api_server.py": "async def other(): ...\ndef build_app(args): ...",
    "entrypoints/cli/serve.py": "def run():\n    from vllm.entrypoints.openai.api_server import x",
}
PROGRAM = {
    "entrypoints/api_server.py": "def build_app(args): ...\nif __name__ == '__main__': ...",
    "entrypoints/about.py": "from vllm.entrypoints.api_server_of_others import build_app",
}


@pytest.mark.parametrize(
    ("files", "home"),
    [
        (USED, "vllm.entrypoints.openai.api_server"),
        # 0.11 to 0.29 have both; the example's server knows none of OpenAI's paths.
        (USED | PROGRAM, "vllm.entrypoints.openai.api_server"),
        (PROGRAM, "vllm.entrypoints.api_server"),
        (
            {"entrypoints/launchers/app.py": "from .new import build_app"} | USED | PROGRAM,
            LAST_KNOWN,
        ),
        (
            {"entrypoints/a.py": "def build_app(): ...", "entrypoints/b/app.py": "build_app = 1"},
            "vllm.entrypoints.b.app",
        ),
        ({"serving/app.py": "class build_app: ..."}, "vllm.serving.app"),
        (
            {"entrypoints/app.py": "x = build_app\nbuild_app == 1\ndef build_application(): ..."},
            None,
        ),
    ],
)
def test_a_name_is_found_where_it_is_defined_for_others(
    tmp_path: Path, files: dict[str, str], home: str | None
) -> None:
    for name, text in files.items():
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert Source(tmp_path / "vllm").home("build_app", LAST_KNOWN) == home


@pytest.mark.parametrize(
    ("definition", "arguments", "problem"),
    [
        ("def f(self, prompt, *, priority=0)", "prompt= priority=", ""),
        ("def f(self, prompt, *, priority=0, **more)", "prompt= other=", ""),
        # One that is given by its place may be called otherwise.
        ("def f(self, request_ids)", "request_id", ""),
        ("def f(self)", "request_id", "takes 0 arguments by place"),
        ("def f(self, *ids)", "request_id", ""),
        ("def f(args, *, new)", "args", "requires new"),
        ("def f(args, new)", "args=", "requires new"),
        ("def f(self, prompt, /)", "prompt=", "takes no prompt by name"),
        ("def f(self, prompt=None, /)", "prompt=", "takes no prompt by name"),
        ("def f(self, prompt, level=0)", "prompt= priority=", "takes no priority by name"),
        ("def f(args)", "args= supported_tasks=?", ""),
    ],
)
def test_how_a_function_can_be_called(definition: str, arguments: str, problem: str) -> None:
    function = ast.parse(f"{definition}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    found = problem_of_call(function, arguments.split())
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


@pytest.mark.parametrize(
    ("files", "module", "place"),
    [
        (
            ["v1/engine/core.py", "older/engine/core.py"],
            "vllm.v1.engine.core",
            "vllm.v1.engine.core",
        ),
        (["engines/engine/core.py"], "vllm.v1.engine.core", "vllm.engines.engine.core"),
        # One word tells nothing: every package may have it.
        (["engines/utils.py"], "vllm.v1.utils", "vllm.v1.utils"),
        (["engines/core.py"], "vllm.v1.engine.core", "vllm.v1.engine.core"),
    ],
)
def test_a_module_is_found_whose_package_has_another_name(
    tmp_path: Path, files: list[str], module: str, place: str
) -> None:
    for name in files:
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    assert Source(tmp_path / "vllm").place(module) == place


@pytest.mark.parametrize(
    ("file", "calls"),
    [("v1/worker/runner.py", True), ("v1/engine/core.py", False), ("next/runner.py", True)],
)
def test_calls_in_a_package_that_has_another_name_are_found(
    tmp_path: Path, file: str, calls: bool
) -> None:
    """Else a fault of vLLM's would look as if a release had mended it."""
    path = tmp_path / "vllm" / file
    path.parent.mkdir(parents=True)
    path.write_text("generator.set_offset(4)", encoding="utf-8")
    if file.startswith("v1"):
        (tmp_path / "vllm" / "v1" / "worker").mkdir(exist_ok=True)
        (tmp_path / "vllm" / "v1" / "worker" / "__init__.py").touch()
    assert Source(tmp_path / "vllm").calls("vllm.v1.worker", "set_offset") is calls
