"""A report: texts of others stay on their lines, and a redacted one shows none."""

from lmi_backend.migrate import kinds
from lmi_backend.migrate.kinds import Difference
from lmi_backend.migrate.reading import Corpus
from lmi_backend.migrate.records import RecordedExchange, Request
from lmi_backend.migrate.report import Group, Report, lines_of
from lmi_backend.migrate.running import Outcome, Times
from lmi_backend.migrate.shrinking import Example

HOSTILE = "a\nb\x1b[2J\u202e\ud800"


def report(*, is_redacted: bool = False) -> Report:
    request = Request(f"/{HOSTILE}", HOSTILE.encode("utf-8", "replace"), "POST", {"x": HOSTILE})
    difference = Difference(kinds.VALUE, HOSTILE, HOSTILE, HOSTILE)
    times = Times(0.1, 0.01, 0.5)
    outcome = Outcome(HOSTILE, "a client", HOSTILE, [difference], times, times)
    example = Example(request, is_repeated=False)
    group = Group(HOSTILE, "a client", difference, (HOSTILE,), example)
    corpus = Corpus([RecordedExchange(request, None, HOSTILE)], [f"{HOSTILE}: {HOSTILE}"], 1)
    return Report([outcome], [group], corpus, is_redacted)


def test_hostile_texts_stay_on_their_lines() -> None:
    lines = list(lines_of(report()))
    assert all(line.isprintable() for line in lines)
    assert "\n".join(lines).encode()
    assert "      the same request did not show it again" in lines
    assert "total            now       500.0     500.0     500.0" in lines


def test_a_redacted_request_is_a_shape() -> None:
    shown = report(is_redacted=True)
    (group,) = shown.as_dict()["differences"]
    assert (group["was"], group["now"]) == ("(hidden)", "(hidden)")
    body = b'{"inputs": "secret", "parameters": {"max_new_tokens": 7, "stop": ["secret"]}}'
    request = Request("/invocations?a=secret", body, "POST", {"x": "secret"})
    assert shown.request_text(request) == (
        "POST /invocations -H 'x: (hidden)' "
        '{"inputs": "text", "parameters": {"max_new_tokens": "integer", "stop": ["text"]}}'
    )
