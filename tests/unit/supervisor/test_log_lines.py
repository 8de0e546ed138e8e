import json
import re

import pytest

from lmi_backend.supervisor.log_relay import JSON, TEXT, LogFormat

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"
HEAD = "1126 12:01:49.686907 25647"
ACCESS = "POST /v1/chat/completions status=200 id=a key=- model=tiny client=10.0.0.1"
LINES = {
    f'I{HEAD} model_lifecycle.cc:472] "loading: tiny:1"': ("INFO", "triton", "", "loading: tiny:1"),
    # Releases before 24.07 write no quotes.
    f"E{HEAD} server.cc:2] it says 'no'": ("ERROR", "triton", "", "it says 'no'"),
    f'W{HEAD} server.cc:2] "one\\ntwo"': ("WARNING", "triton", "", "one\ntwo"),
    f'I{HEAD} logs.py:101] "tiny: engine vllm"': ("INFO", "model", "tiny", "engine vllm"),
    f'W{HEAD} logs.py:99] "worker tiny/0 died"': ("WARNING", "model", "tiny", "worker tiny/0 died"),
    f'E{HEAD} logs.py:9] "[tiny/0] Traceback"': ("ERROR", "engine", "tiny", "[tiny/0] Traceback"),
    f'I{HEAD} logs.py:101] "request model=tiny id=a"': (
        "INFO",
        "model",
        "tiny",
        "request model=tiny id=a",
    ),
    # Nobody serves a model of this name.
    f'I{HEAD} logs.py:101] "other: words"': ("INFO", "model", "", "other: words"),
    f"2026-11-25 15:07:04.720 INFO    frontend: {ACCESS}": ("INFO", "frontend", "tiny", ACCESS),
    "lmi-backend: keys come unencrypted": ("INFO", "frontend", "", "keys come unencrypted"),
    "worker tiny/0 was stopped": ("INFO", "model", "tiny", "worker tiny/0 was stopped"),
}
SHOWN = ["ERROR triton", "WARNING triton", "WARNING tiny", "INFO tiny: request", "INFO frontend"]


def formatted(style: str, *lines: str, shows_all: bool = True) -> list[str]:
    form = LogFormat(style, shows_all=shows_all)
    form.models = ["tiny"]
    return form("".join(f"{line}\n" for line in lines).encode()).decode().splitlines()


@pytest.mark.parametrize(("raw", "line"), LINES.items(), ids=range(len(LINES)))
def test_every_program_writes_one_format(raw: str, line: tuple[str, str, str, str]) -> None:
    level, part, model, text = line
    (written,) = formatted(JSON, raw)
    answer = json.loads(written)
    assert (answer["level"], answer["part"], answer["model"], answer["text"]) == line
    source = model if model and part in ("model", "engine") else part
    (first, *_) = formatted(TEXT, raw)
    assert re.fullmatch(rf"{TIME} {level:<7} {source}: {re.escape(text.splitlines()[0])}", first)


def test_a_screen_shows_warnings_errors_and_requests() -> None:
    written = formatted(TEXT, *LINES, shows_all=False)
    heads = [" ".join(line.split()[2:]) for line in written]
    assert len(heads) == 7
    assert all(any(head.startswith(shown) for shown in SHOWN) for head in heads if head)


@pytest.mark.parametrize(
    ("letter", "place", "text", "shown"),
    [
        ("W", "logs.py", "[tiny/0] parameter 'x' changes nothing (logged once)", "WARNING tiny: "),
        ("I", "logs.py", "worker tiny/0 is adopted: its stub has died", "INFO    tiny: "),
        ("I", "logs.py", "worker tiny/0 is not adopted: it is gone", "INFO    tiny: "),
        # An engine may print the same.
        ("I", "logs.py", "[tiny/0] worker tiny/0 is adopted", ""),
        ("E", "server.cc", "CudaDriverHelper has not been initialized.", ""),
        ("E", "server.cc", "DCGM unable to start: no GPU", ""),
        # `serve` says it itself.
        ("E", "model.cc", "ERROR: Failed to create instance: no\n\nAt:\n  a.py(58)", ""),
        ("E", "model.cc", "failed to load 'bad' version 1: no", ""),
    ],
)
def test_what_a_screen_shows_of_a_line(letter: str, place: str, text: str, shown: str) -> None:
    lines = f'{letter}{HEAD} {place}:9] "{text}"'.split("\n")
    on_screen = formatted(TEXT, *lines, shows_all=False)
    assert [line.split(maxsplit=2)[2] for line in on_screen] == ([shown + text] if shown else [])
    assert len(formatted(TEXT, *lines)) == len([*filter(None, lines)])


@pytest.mark.parametrize("is_shown", [True, False])
def test_lines_without_a_head_go_with_the_line_before(*, is_shown: bool) -> None:
    first = f"{'E' if is_shown else 'I'}{HEAD} server.cc:631] "
    written = formatted(TEXT, first, "+----+", "", "| READY |", shows_all=False)
    assert [line.rpartition("triton: ")[2] for line in written] == (
        ["+----+", "| READY |"] if is_shown else []
    )


def test_serve_itself_writes_the_same_format() -> None:
    form = LogFormat(TEXT)
    assert re.fullmatch(rf"{TIME} WARNING serve: it waits\n", form.own("WARNING", "it waits"))


def test_what_is_no_text_ends_nothing() -> None:
    assert b"\xef\xbf\xbd" in LogFormat(TEXT)(b"E" + HEAD.encode() + b" a.cc:1] \xff\n")
