import ast
from pathlib import Path

import pytest

from lmi_backend.options.package_source import Module, Package, texts_in


def package_of(folder: Path, **files: str) -> Package:
    for name, text in files.items():
        path = folder / "lib" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Package(folder / "lib")


def resolved(package: Package, text: str, module: str = "top") -> str:
    home = package.module(module)
    assert isinstance(home, Module)
    return ast.unparse(package.resolve(ast.parse(text, mode="eval").body, home))


def test_a_name_is_followed_to_the_module_that_defines_it(tmp_path: Path) -> None:
    package = package_of(
        tmp_path,
        top="from lib.a import X as Y\nfrom .b.c import Z\nfrom other import Foreign\n",
        a="from lib.b import X\n",
        b____init__="from .c import *\n",
        b__c="from ..d import Z\nX = Literal['x', 1]\n",
        d="Z = Y | None\nY = Annotated[list[W], 'a note']\nW = int\n",
    )
    (tmp_path / "lib" / "b" / "__init__.py").write_text("from .c import *\n", encoding="utf-8")
    assert resolved(package, "Y | str") == "Literal['x', 1] | str"
    assert resolved(package, "Optional[Z]") == "Optional[list[int] | None]"
    assert resolved(package, "Foreign | Unknown") == "Foreign | Unknown"


def test_names_for_checkers_of_types_count(tmp_path: Path) -> None:
    package = package_of(
        tmp_path,
        top="if TYPE_CHECKING:\n    from lib.a import X\nelse:\n    X = str\n"
        "try:\n    Y = Literal['new']\nexcept ImportError:\n    Y = Literal['old']\n",
        a="X = Literal['a']\n",
    )
    assert resolved(package, "dict[X, Y]") == "dict[Literal['a'], Literal['new']]"


@pytest.mark.parametrize(
    "text", ["X = Literal[X]", "X = list[Y]\nY = list[X]", "from lib.top import X", "X = X"]
)
def test_what_stands_for_itself_ends(tmp_path: Path, text: str) -> None:
    assert resolved(package_of(tmp_path, top=text), "X")[-1] in "XY]"


def test_words_of_words_are_one_list(tmp_path: Path) -> None:
    package = package_of(tmp_path, top="A = Literal['a', B]\nB = Literal['b', C]\nC = Literal['c']")
    assert resolved(package, "A") == "Literal['a', 'b', 'c']"


@pytest.mark.parametrize("text", ["def", "\0", "# coding: klingon", "x = " + "-" * 100_000 + "1"])
def test_a_module_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    package = package_of(tmp_path, top=text)
    assert package.module("top") is None
    assert package.module("missing") is None


def test_texts_are_constants_only() -> None:
    call = ast.parse("f('a', b, 3, 'c')", mode="eval").body
    assert isinstance(call, ast.Call)
    assert texts_in(call.args) == ["a", "c"]
