"""The licences of what is installed: none that nobody has thought of."""

import re
from importlib.metadata import PathDistribution
from pathlib import Path

import licenses
import pytest
from licenses import installed, is_permissive, license_of, problems

from tests.support.run.places import ROOT

PAGE = licenses.PAGE.read_text("utf-8")
FOUND = installed(ROOT)
OSI = "Classifier: License :: OSI Approved :: "


def test_what_is_installed_is_explained() -> None:
    assert len(FOUND) > 50
    assert [*problems(PAGE, FOUND)] == []


@pytest.mark.parametrize(
    ("name", "license_", "message"),
    [
        ("new", "AGPL-3.0-only", "a line `new` (AGPL-3.0-only)"),
        ("certifi", "MIT", "no line `certifi`"),
        ("certifi", "GPL-3.0", "a line `certifi` (GPL-3.0)"),
    ],
)
def test_a_licence_that_nobody_has_explained_as_it_is_is_refused(
    name: str, license_: str, message: str
) -> None:
    assert [*problems(PAGE, FOUND | {name: license_})] == [f"accepted: {message}"]


@pytest.mark.parametrize(
    ("license_", "permissive"),
    [
        ("MIT", True),
        ("(MIT OR Apache-2.0) AND BSD-3-Clause", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("MPL-2.0 AND MIT", False),
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
            ["License: Dual License", f"{OSI}BSD License", f"{OSI}Apache Software License"],
            "BSD OR Apache-2.0",
        ),
        (["License: Own terms of Example Inc."], "Own terms of Example Inc."),
        ([], ""),
    ],
)
def test_a_package_names_its_licence(tmp_path: Path, lines: list[str], license_: str) -> None:
    (tmp_path / "METADATA").write_text("\n".join(["Name: thing", "Version: 1.0", *lines, ""]))
    assert license_of(PathDistribution(tmp_path)) == license_


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
