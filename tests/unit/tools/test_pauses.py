"""What tools/pauses.py counts, and where it writes that."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.chaos_report import Report, replace_pauses
from tests.support.pauses import SERVER, TOKENS, WORKER, Pauses


def _stream(text: str, times: list[float], tokens: int = TOKENS, **more: Any) -> Any:
    values = {"text": text, "num_tokens": tokens, "error": "", "endings": 1} | more
    pause = max(later - one for one, later in pairwise(times))
    return SimpleNamespace(pause=lambda: pause, **values)


def test_each_stream_that_differs_from_an_undisturbed_one_counts() -> None:
    seen = Pauses()
    streams = [
        _stream("a b c", [0.0, 1.0, 4.0]),
        _stream("a b", [0.0, 1.0]),
        _stream("a b b c", [0.0, 1.0]),
        _stream("a b d", [0.0, 1.0]),
        _stream("a b c", [0.0, 1.0], tokens=TOKENS + 1),
        _stream("a", [0.0, 1.0], error="its worker died"),
        _stream("a b c", [0.0, 1.0], endings=2),
    ]
    seen.take(streams, ["a b c"] * len(streams))
    assert seen.counts == {"lost": 1, "doubled": 2, "changed": 1, "failed": 2}
    assert seen.longest == [3.0]
    seen.take([_stream("a b c", [0.0, 1.0])], ["a b c"])
    fault, result = seen.row()
    assert "2 times" in fault
    assert "The longest pause was 3.0 s, the median of the longest at each kill 2.0 s" in result


def test_its_rows_are_kept_side_by_side(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    Report().write(page, 2)
    rows = []
    for what in (SERVER, WORKER, SERVER):
        seen = Pauses(what=what)
        seen.take([_stream("a b c", [0.0, 1.0 + len(rows)])], ["a b c"])
        rows.append(seen.row())
        replace_pauses(page, rows[-1])
    last = [f"| {fault} | {result} |" for fault, result in (rows[1], rows[2])]
    starts = tuple(f"| {what} is killed, " for what in (WORKER, SERVER))
    assert [line for line in page.read_text().splitlines() if line.startswith(starts)] == last


def test_its_row_is_replaced_and_stays_when_the_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    Report().write(page, 2)
    kills = "vLLM's worker or its engine core is killed, {} times, with a spare"
    for count in (5, 100):
        replace_pauses(page, (kills.format(count), "seen"))
    row = f"| {kills.format(100)} | seen |\n"
    assert page.read_text().count("engine core is killed, ") == 1
    assert row in page.read_text()
    report = Report()
    report.note_front("another", "seen")
    report.write(page, 2)
    assert f"| --- | --- |\n{row}| another | seen |\n" in page.read_text()
