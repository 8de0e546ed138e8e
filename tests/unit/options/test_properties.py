from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi_backend.errors import ConfigurationError
from lmi_backend.options.properties import Property, as_property, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\tb c", "a", "b c"),
        ("  a =  b  ", "a", "b  "),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a==b", "a", "=b"),
        (r"a\=b=c", "a=b", "c"),
        (r"a\ b=c", "a b", "c"),
        (r"a=b\n\t\r\f\q", "a", "b\n\t\r\fq"),
        (r"a=\u0041\u00e9", "a", "Aé"),
        (r"a=\ud83d\ude00", "a", "😀"),
        (r"a=\ud83d", "a", "\ufffd"),
        (r"a=\\u0041", "a", r"\u0041"),
        ("a=b\\", "a", "b"),
        ("\f a\f=\fb\f", "a", "b\f"),
        ("a=é#!", "a", "é#!"),
    ],
)
def test_one_line(text: str, key: str, value: str) -> None:
    assert parse_properties(text) == [Property(key, value, 1)]


@pytest.mark.parametrize("text", ["", "\n\n", "# a=b", "! a=b", "  # a=b", "# a=b\\", "\ta\\"[:1]])
def test_nothing_to_read(text: str) -> None:
    assert parse_properties(text) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_goes_on_whatever_ends_it(end: str) -> None:
    text = f"a=b\\{end}\t c{end}d=e\\{end}{end}f=g"
    assert parse_properties(text) == [
        Property("a", "bc", 1),
        Property("d", "e", 3),
        Property("f", "g", 5),
    ]


def test_a_comment_does_not_go_on_but_a_continued_line_may_look_like_one() -> None:
    assert parse_properties("# a\\\nb=c\nd=\\\n# e") == [
        Property("b", "c", 2),
        Property("d", "# e", 3),
    ]


@pytest.mark.parametrize("text", [r"a=\u00", r"a=\uXYZW", r"\u12=b"])
def test_a_malformed_escape_names_file_and_line(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"f\.properties:2: malformed escape"):
        parse_properties(f"\n{text}", name="f.properties")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_files_in_utf_8_and_latin_1(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "serving.properties"
    path.write_bytes("a=café".encode(encoding))
    assert read_properties(path) == [Property("a", "café", 1)]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_properties(tmp_path / "none")


def _as_units(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _as_java_stores_it(text: str) -> str:
    escapes = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"}
    return "".join(escapes.get(c) or (f"\\{c}" if c in "\\=: #!" else c) for c in text)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.lists(st.tuples(_TEXT.filter(bool), _TEXT)),
    st.sampled_from([_as_units, _as_java_stores_it]),
    st.sampled_from(["=", " : ", "\t", "=\\\n  "]),
)
def test_whatever_is_escaped_comes_back(
    pairs: list[tuple[str, str]], escape: Callable[[str], str], separator: str
) -> None:
    text = "\n".join(f"{escape(key)}{separator}{escape(value)}" for key, value in pairs)
    assert [(p.key, p.value) for p in parse_properties(text)] == pairs


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_properties(text)
    except ConfigurationError as error:
        assert "malformed escape" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "value",
    ["a", " a ", "a\\", "\\", "a\nb", "\ta", "é😀", "# a", "=a", ": a", "a\\\\nb", "\r\f", ""],
)
def test_what_is_written_is_read(value: str) -> None:
    (entry,) = parse_properties(as_property("option.a", value))
    assert (entry.key, entry.value) == ("option.a", value)
