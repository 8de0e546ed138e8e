import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import pytest

from lmi_backend.engines.vllm.own_arguments import mark_of, type_text, value_text
from lmi_backend.options.signature import ANY_CASE, SCALED, TEXT_LIMIT, Argument


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (int, "int"),
        (int | None, "int | None"),
        (Optional[Literal["a", "b"]], "'a' | 'b' | None"),  # noqa: UP045
        (Union[Literal["auto", "a.b"], str], "'auto' | 'a.b' | str"),  # noqa: UP007
        (dict[str, Any] | Callable[[Any], Any], "dict | Callable"),
        (list[int] | None, "list[int] | None"),
        (list[int | str], "list[str]"),
        (list[Literal["m", "w"]], "list['m' | 'w']"),
        (list[tuple[int, int]], "list[tuple]"),
        (Annotated[int, "checked"], "int"),
        (type[Any], "type"),
        (Path, "Path"),
    ],
)
def test_a_type_is_text(kind: Any, text: str) -> None:
    assert type_text(kind) == text


def test_a_default_is_the_same_everywhere() -> None:
    assert value_text({"b", "a"}) == "{'a', 'b'}"
    assert value_text(object) == "object"
    assert value_text(Argument("", "")) == "Argument()"
    assert value_text(str(Path.home() / "x")) == "'~/x'"
    assert len(value_text("m" * 500)) == TEXT_LIMIT


def test_how_a_flag_reads_is_tried() -> None:
    def scaled(text: str) -> int:
        if not text.endswith("k"):
            raise argparse.ArgumentTypeError(text)
        return int(text[:-1]) * 1000

    assert mark_of(scaled) == SCALED
    assert mark_of(lambda text: text.lower().replace("-", "_")) == ANY_CASE
    assert {mark_of(each) for each in (int, str, float, None, {}.__getitem__)} == {""}
