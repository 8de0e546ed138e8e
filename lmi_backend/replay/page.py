"""A report as one HTML page that loads nothing: answers are hostile, so every text is escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from lmi_backend.printable import printable
from lmi_backend.replay.latencies import MEASURES, SHARES, quantile

if TYPE_CHECKING:
    from lmi_backend.replay.report import Group, Report

_PROBLEMS: Final = 100
_WIDTH: Final = 560
_HEIGHT: Final = 160
_LEFT: Final = 40
_POINTS: Final = 100
_MARGIN: Final = 1.2
"""Of the axis, beyond the least and the most."""
_NAMES: Final = {"was": "before", "now": "now"}
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --was: #c60; --now: #08a; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; }
td, th { border-bottom: 1px solid var(--line); padding: .2rem .8rem .2rem 0; text-align: left; }
td.number, th.number { text-align: right; }
section { border: 1px solid var(--line); border-radius: 6px; margin: 1rem 0; padding: .5rem 1rem; }
pre { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; }
svg { max-width: 100%; } svg text { font-size: 11px; fill: currentColor; }
.was { stroke: var(--was); color: var(--was); } .now { stroke: var(--now); color: var(--now); }
polyline { fill: none; stroke-width: 2; } svg line { stroke: var(--line); }
""".strip()


def page_of(report: Report) -> str:
    """Return the page."""
    # No script, no picture and no font of anybody may be loaded, whatever a body holds.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Replay</title><style>{_STYLE}</style></head><body>"
    )
    return "\n".join([head, *_summary(report), *_groups(report), *_latencies(report), _END, ""])


_END: Final = "</body></html>"


def _text(text: str, most: int = 400) -> str:
    return html.escape(printable(text, most))


def _row(cells: Sequence[str], *, tag: str = "td", numbers: int = 0) -> str:
    """Return a row of escaped cells; the last ones are numbers."""
    first = len(cells) - numbers
    marks = (' class="number"' if place >= first else "" for place in range(len(cells)))
    inner = (f"<{tag}{mark}>{cell}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
    return f"<tr>{''.join(inner)}</tr>"


def _summary(report: Report) -> Iterator[str]:
    judged = len(report.judged)
    yield "<h1>Replay</h1>"
    if judged:
        same = 100 - report.different
        yield f"<p><strong>{same:.1f} %</strong> of {judged} requests show no difference.</p>"
    if without := len(report.outcomes) - judged:
        yield f"<p>{without} requests have no recorded answer and were not judged.</p>"
    if report.corpus.skipped:
        yield f"<p>{report.corpus.skipped} HAR entries load pages or pictures.</p>"
    yield "<table>"
    yield _row(["client", "path", "requests", "the same"], tag="th", numbers=2)
    for (client, path), (count, same_count) in report.paths().items():
        share = f"{100 * same_count / count:.1f} %"
        yield _row([_text(client), _text(path), str(count), share], numbers=2)
    yield "</table>"
    if problems := report.corpus.problems:
        yield f"<h2>{len(problems)} records cannot be read</h2><ul>"
        yield from (f"<li>{_text(str(each))}</li>" for each in problems[:_PROBLEMS])
        yield "</ul>"


def _groups(report: Report) -> Iterator[str]:
    if report.groups:
        yield "<h2>Differences</h2>"
    for group in report.groups:
        yield from _group(report, group)


def _group(report: Report, group: Group) -> Iterator[str]:
    kind, place, *_ = group.difference
    was, now = report.sides(group.difference)
    count = len(group.places)
    yield f"<section><h3>{_text(kind)} <code>{_text(place)}</code></h3>"
    requests = "request" if count == 1 else "requests"
    seen = f"the first at {_text(group.places[0])}"
    yield f"<p>{count} {requests} to <code>{_text(group.path)}</code>, {seen}</p><table>"
    for name, value in (("before", was), ("now", now)):
        yield _row([name, f"<code>{_text(value)}</code>"])
    yield "</table>"
    if group.example is not None:
        shown = _text(report.request_text(group.example.request), 4000)
        yield f"<p>A request that shows it:</p><pre><code>{shown}</code></pre>"
        if not group.example.is_repeated:
            yield "<p>The same request did not show it again.</p>"
    yield f"<p>{_text(group.advice)}</p></section>"


def _latencies(report: Report) -> Iterator[str]:
    known = {name: sides for name, sides in report.latencies().items() if any(sides.values())}
    if known:
        yield "<h2>Latencies</h2><p>The share of answers that needed no more than a time.</p>"
    for measure, sides in known.items():
        yield f"<h3>{MEASURES[measure]}</h3>"
        yield _picture(sides)
        yield "<table>"
        heads = [f"p{share * 100:g}, ms" for share in SHARES]
        yield _row(["", *heads], tag="th", numbers=len(SHARES))
        for name, times in sides.items():
            if times:
                cells = [f"{1000 * quantile(times, share):.1f}" for share in SHARES]
                yield _row([f'<b class="{name}">{_NAMES[name]}</b>', *cells], numbers=len(SHARES))
        yield "</table>"


def _picture(sides: dict[str, list[float]]) -> str:
    """Return the distributions of times as a picture, on a logarithmic axis."""
    every = [max(value, 1e-6) for times in sides.values() for value in times]
    low, high = math.log(min(every) / _MARGIN), math.log(max(every) * _MARGIN)

    def across(seconds: float) -> float:
        return _LEFT + (math.log(max(seconds, 1e-6)) - low) / (high - low) * (_WIDTH - _LEFT)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 20}" width="{_WIDTH}" role="img">']
    for share in (0, 0.5, 1):
        down = _HEIGHT - share * (_HEIGHT - 10)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{down}" y2="{down}"/>')
        parts.append(f'<text x="0" y="{down + 4}">{share * 100:g} %</text>')
    for seconds in _marks(math.exp(low), math.exp(high)):
        label = f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"
        parts.append(f'<text x="{across(seconds):.0f}" y="{_HEIGHT + 16}">{label}</text>')
    for name, times in sides.items():
        step = max(len(times) // _POINTS, 1)
        points = [(times[at], (at + 1) / len(times)) for at in range(0, len(times), step)]
        points += [(times[-1], 1.0)] if times else []
        drawn = " ".join(
            f"{across(time):.1f},{_HEIGHT - share * (_HEIGHT - 10):.1f}" for time, share in points
        )
        parts.append(f'<polyline class="{name}" points="{drawn}"/>')
    return "".join([*parts, "</svg>"])


def _marks(least: float, most: float) -> list[float]:
    """Return round times between two others, at most eight."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    inside = [round(each, 9) for each in every if least <= each <= most]
    return inside[:: max(math.ceil(len(inside) / 8), 1)]
