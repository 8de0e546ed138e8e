"""A report: texts of others stay on their lines, and a redacted one shows none."""

from lmi_backend.migrate import kinds
from lmi_backend.migrate.kinds import Difference
from lmi_backend.migrate.reading import Corpus
from lmi_backend.migrate.report import Report, lines_of
from lmi_backend.migrate.running import Outcome, Times

HOSTILE = "a\nb\x1b[2J\u202e\ud800"


def report(*, is_redacted: bool = False) -> Report:
    difference = Difference(kinds.VALUE, HOSTILE, HOSTILE, HOSTILE)
    times = Times(0.1, 0.01, 0.5)
    outcomes = [Outcome(HOSTILE, "a client", HOSTILE, [difference], times, times)]
    corpus = Corpus([], [f"{HOSTILE}: {HOSTILE}"], 1)
    return Report(outcomes, corpus, is_redacted)


def test_hostile_texts_stay_on_their_lines() -> None:
    lines = list(lines_of(report()))
    assert all(line.isprintable() for line in lines)
    assert "\n".join(lines).encode()
    assert "total            now       500.0     500.0     500.0" in lines


def test_a_redacted_report_quotes_no_answer() -> None:
    (group,) = report(is_redacted=True).as_dict()["differences"]
    assert (group["was"], group["now"]) == ("(hidden)", "(hidden)")
