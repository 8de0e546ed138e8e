"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lmi_backend.printable import printable
from lmi_backend.replay.latencies import MEASURES, SHARES, quantile

if TYPE_CHECKING:
    from lmi_backend.replay.report import Group, Report

_PROBLEMS = 10
_WIDEST = 110


def lines_of(report: Report) -> Iterator[str]:
    """Yield the lines of a report."""
    yield from _head(report)
    if report.groups:
        yield ""
        yield "differences"
    for group in report.groups:
        yield from _group(report, group)
    yield from _latencies(report)


def _head(report: Report) -> Iterator[str]:
    judged = len(report.judged)
    same = sum(not each.differences for each in report.judged)
    percent = f" ({100 - report.different:.1f} %)" if judged else ""
    yield f"{judged} requests judged, {same}{percent} without a difference"
    if without := len(report.outcomes) - judged:
        yield f"{without} requests have no recorded answer; --against OLD has them judged"
    if skipped := report.corpus.skipped:
        yield f"{skipped} HAR entries load pages or pictures and were not sent"
    problems = report.corpus.problems
    if problems:
        yield f"{len(problems)} records cannot be read:"
        yield from (f"  {printable(str(each), 200)}" for each in problems[:_PROBLEMS])
        if (more := len(problems) - _PROBLEMS) > 0:
            yield f"  and {more} more"
    yield ""
    yield f"{'client':<28} {'path':<36} {'requests':>8} {'the same':>9}"
    for (client, path), (count, fine) in report.paths().items():
        share = f"{100 * fine / count:.1f} %"
        yield f"{client:<28} {printable(path, 60):<36} {count:>8} {share:>9}"


def _group(report: Report, group: Group) -> Iterator[str]:
    kind, place, *_ = group.difference
    was, now = report.sides(group.difference)
    yield f"  {len(group.places)}x {kind}  {printable(place, 60)}  {printable(group.path, 60)}"
    yield f"      was: {printable(was, _WIDEST)}"
    yield f"      now: {printable(now, _WIDEST)}"
    yield f"      first seen: {printable(group.places[0], 200)}"
    if group.example is not None:
        yield f"      request: {report.request_text(group.example.request)}"
        if not group.example.is_repeated:
            yield "      the same request did not show it again"
    yield f"      {group.advice}"


def _latencies(report: Report) -> Iterator[str]:
    rows = []
    for measure, sides in report.latencies().items():
        for name, times in sides.items():
            if times:
                cells = "".join(f"{1000 * quantile(times, share):>10.1f}" for share in SHARES)
                rows.append(f"{MEASURES[measure]:<16} {name:<5}{cells}")
    if rows:
        yield ""
        heads = "".join(f"{f'p{share * 100:g}':>10}" for share in SHARES)
        yield f"{'milliseconds':<22}{heads}"
        yield from rows
