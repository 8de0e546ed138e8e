"""The last lines of a stub's log."""

from lmi_backend.endpoint.state import RecentLog


def test_the_last_lines_are_kept_by_number() -> None:
    log = RecentLog()
    for number in range(1, 251):
        log.add(float(number), "INFO", f"line {number}")
    assert [line[0] for line in log.after(0)] == list(range(51, 251))
    assert log.after(249) == [(250, 250.0, "INFO", "line 250")]
    assert log.after(250) == []


def test_secrets_that_are_known_later_leave_it_too() -> None:
    log = RecentLog()
    log.add(1.0, "INFO", "the secret is out")
    log.rewrite(lambda text: text.replace("secret", "***"))
    log.add(2.0, "INFO", "next")
    assert log.after(0) == [(1, 1.0, "INFO", "the *** is out"), (2, 2.0, "INFO", "next")]


def test_a_long_line_is_cut() -> None:
    log = RecentLog()
    log.add(1.0, "ERROR", "x" * 10_000)
    assert len(log.after(0)[0][3]) == 4000
