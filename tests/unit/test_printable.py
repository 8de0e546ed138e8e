"""A client's text and sizes, as people read them."""

import contextlib
import os
import sys
from typing import TextIO

import pytest

from lmi_backend import printable as printable_module
from lmi_backend.printable import GIB, as_utf_8, cut, human_bytes, listed, printable, say


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (-3 * GIB, "-3.0 GiB"),
        (5 * 1024**6, "5120.0 PiB"),
    ],
)
def test_bytes_are_shown_in_a_fitting_unit(count: int, shown: str) -> None:
    assert human_bytes(count) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a b/ü-7", "a b/ü-7"),
        ("a\nb\tc\0", "a\\nb\\tc\\x00"),
        ("\u202eab\u2028", "\\u202eab\\u2028"),
        ("\ud800", "\\ud800"),
        ("x" * 10, "x" * 10),
        ("x" * 11, "xxxxxxxxxx… (11 characters)"),
        ("\n" * 11, "\\n\\n\\n\\n\\n… (11 characters)"),
    ],
)
def test_a_text_is_cut_and_escaped(text: str, shown: str) -> None:
    assert printable(text, 30 if "x" not in text and len(text) < 11 else 10) == shown


def test_to_cut_again_changes_nothing() -> None:
    once = cut("x" * 50, 10)
    assert once == "x" * 9 + "…"
    assert cut(once, 10) == once
    assert cut("x" * 10, 10) == "x" * 10


def test_of_many_names_the_first_are_listed() -> None:
    assert listed([]) == "none"
    assert listed([], "nothing") == "nothing"
    assert listed(["a", "b\n"]) == "a, b\\n"
    assert listed(map(str, range(25))).endswith(", 18, 19 and 5 more")


def _stderr(descriptor: int) -> TextIO:
    return os.fdopen(descriptor, "w", closefd=False)


def test_a_line_that_nobody_can_read_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = os.pipe()
    os.close(theirs)
    with open("/dev/full", "w") as full:
        for stream in (_stderr(ours), full, None):
            monkeypatch.setattr(sys, "stderr", stream)
            for _ in range(3):
                say("x" * 10_000)
    closed = _stderr(ours)
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    say("x")
    os.close(ours)


def test_a_reader_that_hangs_does_not_stop_who_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printable_module, "_READER_SECONDS", 0.01)
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(ours, b"x" * 4096):
            pass
    os.set_blocking(ours, True)
    monkeypatch.setattr(sys, "stderr", _stderr(ours))
    say("lost")
    os.read(theirs, 1 << 20)
    say("read")
    assert os.read(theirs, 1 << 20) == b"lmi-backend: read\n"
    for each in (theirs, ours):
        os.close(each)


def test_a_name_is_shown_as_it_was_typed_in_whatever_locale() -> None:
    assert as_utf_8("größe".encode().decode("ascii", "surrogateescape")) == "größe"
    assert as_utf_8("größe") == "größe"
    assert as_utf_8("a\udcff") == "a\ufffd"
    assert as_utf_8("a\ud800") == "a\ud800"
