from pathlib import Path

from lmi_backend.engines.vllm.own_arguments import value_text
from lmi_backend.options.signature import TEXT_LIMIT, Argument


def test_a_default_is_the_same_everywhere() -> None:
    assert value_text({"b", "a"}) == "{'a', 'b'}"
    assert value_text(object) == "object"
    assert value_text(Argument("", "")) == "Argument()"
    assert value_text(str(Path.home() / "x")) == "'~/x'"
    assert len(value_text("m" * 500)) == TEXT_LIMIT
