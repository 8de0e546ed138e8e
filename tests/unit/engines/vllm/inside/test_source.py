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
