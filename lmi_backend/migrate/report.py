"""What a replay found: counts for each client, differences in groups, and latencies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lmi_backend.migrate.kinds import QUOTING, Difference, advice_of
from lmi_backend.migrate.running import MEASURES, SHARES, measured, quantile
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from lmi_backend.migrate.reading import Corpus
    from lmi_backend.migrate.running import Outcome

_PLACES = 5
_HIDDEN = "(hidden)"


@dataclass(frozen=True)
class Group:
    path: str
    client: str
    difference: Difference
    places: tuple[str, ...]

    @property
    def advice(self) -> str:
        return advice_of(self.difference.kind, self.client)


@dataclass(frozen=True)
class Report:
    outcomes: Sequence[Outcome]
    corpus: Corpus
    is_redacted: bool = False

    @cached_property
    def groups(self) -> list[Group]:
        """The differences of one kind, place and path, the most frequent first."""
        same: dict[tuple[str, ...], list[tuple[Outcome, Difference]]] = defaultdict(list)
        for outcome in self.outcomes:
            for each in outcome.differences:
                key = outcome.path, *each.key
                same[key].append((outcome, each))
        return [
            Group(first.path, first.client, difference, tuple(each.place for each, _ in members))
            for members in sorted(same.values(), key=len, reverse=True)
            for first, difference in members[:1]
        ]

    @property
    def judged(self) -> list[Outcome]:
        return [each for each in self.outcomes if each.is_judged]

    @property
    def different(self) -> float:
        """Share of the judged requests that show a difference, in percent."""
        judged = self.judged
        return 100 * sum(bool(each.differences) for each in judged) / len(judged) if judged else 0.0

    def paths(self) -> dict[tuple[str, str], tuple[int, int]]:
        all_of = Counter((each.client, each.path) for each in self.judged)
        same = Counter((e.client, e.path) for e in self.judged if not e.differences)
        return {key: (count, same[key]) for key, count in sorted(all_of.items())}

    def latencies(self) -> dict[str, dict[str, list[float]]]:
        """Return the known times of each measure, before and now, the least first."""
        sides = {name: [getattr(each, name) for each in self.outcomes] for name in ("was", "now")}
        return {
            measure: {name: measured(times, measure) for name, times in sides.items()}
            for measure in MEASURES
        }

    def sides(self, difference: Difference) -> tuple[str, str]:
        if self.is_redacted and difference.kind in QUOTING:
            return _HIDDEN, _HIDDEN
        return difference.was, difference.now

    def as_dict(self) -> dict[str, Any]:
        return {
            "requests": len(self.outcomes),
            "judged": len(self.judged),
            "different_percent": round(self.different, 3),
            "problems": self.corpus.problems,
            "skipped": self.corpus.skipped,
            "paths": [
                {"client": client, "path": path, "requests": count, "same": same}
                for (client, path), (count, same) in self.paths().items()
            ],
            "differences": [self._group(each) for each in self.groups],
            "latencies": {
                measure: {name: _quantiles(times) for name, times in sides.items() if times}
                for measure, sides in self.latencies().items()
            },
        }

    def _group(self, group: Group) -> dict[str, Any]:
        was, now = self.sides(group.difference)
        return {
            "kind": group.difference.kind,
            "place": group.difference.place,
            "client": group.client,
            "path": group.path,
            "requests": len(group.places),
            "first": list(group.places[:_PLACES]),
            "was": was,
            "now": now,
            "advice": group.advice,
        }


def _quantiles(times: Sequence[float]) -> dict[str, float]:
    named = {f"p{share * 100:g}": round(quantile(times, share), 6) for share in SHARES}
    return {"count": len(times), **named}


_PROBLEMS = 10
_WIDEST = 110


def lines_of(report: Report) -> Iterator[str]:
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
        yield from (f"  {printable(each, 200)}" for each in problems[:_PROBLEMS])
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
