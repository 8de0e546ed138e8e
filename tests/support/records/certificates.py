"""Certificates of tests' own, made by the openssl program."""

import subprocess
from pathlib import Path


def make_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a certificate for this machine, which is its own authority, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", f"/CN={name}",
         "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
         "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return certificate, key
