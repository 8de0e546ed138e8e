"""Unpack a Debian package into a folder, which needs no root and installs nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class PackageError(Exception):
    """The package cannot be had here."""


def unpacked(package: str, folder: Path) -> Path:
    """Return where a package is unpacked in a folder, downloaded the first time.

    Raises:
        PackageError: this is no Debian, or its archive cannot be reached.
    """
    target = folder / package
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _download(package, folder)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", str(archive), str(target)], check=True)  # noqa: S607
        archive.unlink()
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        message = f"Debian's package {package} cannot be downloaded: {error}"
        raise PackageError(message) from error
    return target


def _download(package: str, folder: Path) -> None:
    download = ["apt-get", "download", "-qq", package]
    if subprocess.run(download, cwd=folder, check=False, stderr=subprocess.DEVNULL).returncode == 0:
        return
    if os.geteuid() == 0:
        # A new machine has no lists of packages yet.
        subprocess.run(["apt-get", "update", "-qq"], check=True)  # noqa: S607
    subprocess.run(download, cwd=folder, check=True)
