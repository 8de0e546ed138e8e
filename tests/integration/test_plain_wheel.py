"""The wheel alone in a clean environment: every word of the command, and the stub's side."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.serving import tritonserver, write_properties

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built as for a release."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*pip, str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and the oldest msgspec that it takes.

    Images of a year ago have it: with some, a struct that changes itself ends its process.
    """
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python, "install"]
    # As the README has it for the release of Triton that the tests use.
    oldest = re.search(r"msgspec>=([\d.]+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert oldest is not None
    subprocess.run([*pip, str(wheel), "numpy<2", f"msgspec=={oldest[1]}"], check=True)
    return folder / "bin"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_properties(tmp_path / "echo", {"option.rolling_batch": "echo"})


def run(clean: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a user without any setting would."""
    return subprocess.run(
        [clean / "lmi-backend", *words],
        env={"PATH": f"{clean}{os.pathsep}/usr/bin:/bin", "HOME": str(clean)},
        cwd=clean,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("--help", 0, "Serve large language models"),
        ("check MODEL", 0, "nothing is refused"),
        ("plan MODEL", 0, "engine      echo"),
        ("options tensor_parallel", 0, "option.tensor_parallel_degree"),
        ("doctor", 1, "no tritonserver: not on PATH, not in /opt/tritonserver/bin"),
        ("doctor MODEL", 1, "`pip install 'numpy<2' nvidia-pytriton==0.7.0` brings one"),
        ("serve MODEL --http-port 0 --grpc-port 0 --metrics-port 0", 2, "the front end needs"),
        (
            "serve MODEL --no-frontend --http-port 0 --grpc-port 0 --metrics-port 0",
            2,
            "no tritonserver",
        ),
        ("frontend", 2, "`pip install 'aiohttp>=3.9' 'backports-zstd>=1' 'httptools>=0.6'"),
        ("health http://127.0.0.1:1", 1, "127.0.0.1:1"),
        ("drain http://127.0.0.1:1", 1, "127.0.0.1:1"),
        ("chat --url http://127.0.0.1:1", 1, "127.0.0.1:1: no answer"),
        ("api-key me", 0, "me"),
    ],
)
def test_every_word_works(words: str, status: int, message: str, clean: Path, model: Path) -> None:
    done = run(clean, *words.replace("MODEL", str(model)).split())
    found = done.stdout + done.stderr
    assert "Traceback" not in found
    # doctor wraps its lines.
    assert message in " ".join(found.split()) or message in found
    assert done.returncode == status


def test_a_plain_tritonserver_serves_what_it_converted(
    clean: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a folder with files that have the names of Python's and of others' modules."""
    monkeypatch.chdir(tmp_path)
    for name in (*sys.stdlib_module_names - set(sys.builtin_module_names), "msgspec", "numpy"):
        Path(f"{name}.py").write_text("raise RuntimeError('a file of the user')\n")
    models = tmp_path / "models"
    assert run(clean, "convert", model, "--repository", models).returncode == 0
    (tmp_path / "server").mkdir()
    with tritonserver(models, tmp_path / "server", python=str(clean / "python")) as served:
        status, answer = served.generate("echo", {"inputs": "a b", "parameters": {}})
        assert (status, answer["generated_text"][:3]) == (200, "a b")
        (stub,) = served.named("stub")
        opened = {Path(each.path) for each in stub.memory_maps() if "msgspec" in each.path}
    assert opened
    assert all(path.is_relative_to(clean.parent) for path in opened)
