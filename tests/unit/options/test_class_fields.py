import ast
from pathlib import Path

from lmi_backend.options.class_fields import TEXT_LIMIT, class_fields, shorten
from lmi_backend.options.package_source import Package


def test_fields_of_bases_come_first_wherever_they_are(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("class Base:\n    a: int = 1\n    b: 'str'\n")
    (tmp_path / "top.py").write_text(
        f"from {tmp_path.name}.base import Base as Other\n"
        "class Top(Other, Foreign):\n    c: bool = Field(False, alias='d')\n    a: str = ''\n"
    )
    package = Package(tmp_path)
    module = package.module("top")
    assert module
    found = class_fields("Top", module, package)
    assert {name: (ast.unparse(each.type), each.default) for name, each in found.items()} == {
        "a": ("str", "''"),
        "b": ("str", "required"),
        "d": ("bool", "False"),
    }
    assert class_fields("Missing", module, package) == {}


def test_long_texts_are_cut() -> None:
    assert len(shorten("m " * TEXT_LIMIT)) == TEXT_LIMIT
