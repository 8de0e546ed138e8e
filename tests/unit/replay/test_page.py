"""The page of a report: everything is escaped, and nothing is loaded."""

from html.parser import HTMLParser

import pytest

from lmi_backend.replay import kinds
from lmi_backend.replay.exchange import RecordedExchange, Request
from lmi_backend.replay.kinds import Difference
from lmi_backend.replay.latencies import Times
from lmi_backend.replay.page import page_of
from lmi_backend.replay.reading import BadRecord, Corpus
from lmi_backend.replay.report import Group, Report
from lmi_backend.replay.running import Outcome
from lmi_backend.replay.shrinking import Example

HOSTILE = "\"><script src=//evil>alert(1)</script><img src=x onerror=a>'\u202e\ud800&amp;</code>"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "strong", "table"),
    *("tr", "th", "td", "ul", "li", "section", "code", "pre", "b", "svg", "line", "text"),
    "polyline",
}


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attributes}

    def handle_data(self, data: str) -> None:
        self.text += data


def report(*, is_redacted: bool = False, times: Times | None = None) -> Report:
    request = Request(f"/{HOSTILE}", HOSTILE.encode("utf-8", "replace"), "POST", {"x": HOSTILE})
    difference = Difference(kinds.VALUE, HOSTILE, HOSTILE, HOSTILE)
    known = times or Times(0.1, 0.01, 0.5)
    outcome = Outcome(HOSTILE, HOSTILE, HOSTILE, [difference], known, known)
    group = Group(HOSTILE, HOSTILE, difference, (HOSTILE,), Example(request, is_repeated=False))
    corpus = Corpus([RecordedExchange(request, None, HOSTILE)], [BadRecord(HOSTILE, HOSTILE)], 1)
    return Report([outcome], [group], corpus, is_redacted)


def test_hostile_texts_stay_texts() -> None:
    page = page_of(report())
    seen = Page(page)
    assert set(seen.tags) <= TAGS
    assert not [name for name in seen.names if name.startswith("on") or name in ("src", "href")]
    assert "<script src=//evil>" in seen.text
    assert "\u202e" not in page
    assert page.encode()
    assert "default-src 'none'" in page
    assert seen.tags.count("svg") == 3


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


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1.0, 1e6])
def test_times_of_any_size_are_drawn(seconds: float) -> None:
    page = page_of(report(times=Times(seconds, None, seconds)))
    assert page.count("<polyline") == 4
    assert "nan" not in page
    assert Page(page_of(report(times=Times()))).tags.count("svg") == 0
