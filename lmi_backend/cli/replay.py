"""`lmi-backend replay`: send recorded requests to a server, and compare the answers."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lmi_backend.cli.arguments import add_timeout, number, percent
from lmi_backend.front_end_settings import KEY_VARIABLE, PORT
from lmi_backend.migrate.judge import TOLERANCE, Judge
from lmi_backend.migrate.reading import read_corpus
from lmi_backend.migrate.report import Report, lines_of
from lmi_backend.migrate.running import MOST_AT_ONCE, Replay, Target
from lmi_backend.printable import log, say

DIFFERENT: Final = 1
"""Exit status when more requests differ than are allowed."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "replay",
        help="send recorded requests to a server, and show where its answers differ",
        description="Send recorded requests to a server, and compare each answer with the recorded "
        "one, or with the answer of a second server. Nothing is sent to any other server.",
        examples=(
            "lmi-backend replay recorded.jsonl --url http://127.0.0.1:8080",
            "lmi-backend replay s3://bucket/capture --against http://old:8080 --url http://new:8080",
        ),
        statuses={
            0: "the answers are the same, or no more differ than --allow permits",
            1: "more answers differ",
        },
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="recorded requests; a folder of them; or s3://…")
    add("--url", default=f"http://127.0.0.1:{PORT}", help="the new server (default %(default)s)")
    add("--against", metavar="URL", help="the old server, which gets them too")
    several = number(int, 1, MOST_AT_ONCE)
    at_once = "requests at once (default %(default)s)"
    add("--concurrency", type=several, default=1, metavar="N", help=at_once)
    add("--rate", type=number(float, 0.001, 10_000), metavar="N", help="start N requests a second")
    add(
        "--header",
        action="append",
        default=[],
        type=_header,
        metavar="NAME:VALUE",
        help="send this header with each request",
    )
    add_timeout(parser, 300.0, "wait no longer for the next part of an answer")
    _add_judging(parser)
    add("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_replay)


def _add_judging(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    share = "accept differences in this share of the requests (default 0%%)"
    add("--allow", type=percent, default=0.0, metavar="N%", help=share)
    add(
        "--ignore",
        action="append",
        default=[],
        metavar="KIND:PLACE",
        help="accept this difference; * stands for any text, as in 'header:x-*'",
    )
    add(
        "--tolerance",
        type=number(float, 0, math.inf),
        default=TOLERANCE,
        metavar="N",
        help="log probabilities may differ by N (default %(default)s)",
    )
    add("--redact", action="store_true", help="show no value of a request or an answer")


def _replay(arguments: argparse.Namespace) -> int:
    corpus = read_corpus(arguments.files, os.environ, say=say)
    replay = _of(arguments)
    total, by_place = len(corpus.exchanges), {}
    with _interruptible(replay):
        for outcome in replay.run(corpus.exchanges):
            by_place[outcome.place] = outcome
            if sys.stderr.isatty():
                log(f"\r{len(by_place)} of {total}" + "\n" * (len(by_place) == total))
    outcomes = [by_place[each.place] for each in corpus.exchanges if each.place in by_place]
    if replay.stop.is_set():
        say(f"stopped after {len(outcomes)} of {total} requests")
    report = Report(outcomes, corpus, arguments.redact)
    if arguments.json:
        sys.stdout.write(json.dumps(report.as_dict(), indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines_of(report))
    if replay.stop.is_set():
        return 130
    return DIFFERENT if report.different > arguments.allow else 0


def _of(arguments: argparse.Namespace) -> Replay:
    headers = dict(arguments.header)
    timeout = arguments.timeout
    key = os.environ.get(KEY_VARIABLE)
    # The key is that of the new server.
    own = {"authorization": f"Bearer {key}"} if key else {}
    return Replay(
        new=Target(arguments.url, timeout, own | headers),
        old=Target(arguments.against, timeout, headers) if arguments.against else None,
        judge=Judge(arguments.tolerance, tuple(arguments.ignore)),
        rate=arguments.rate,
        at_once=arguments.concurrency,
    )


@contextmanager
def _interruptible(replay: Replay) -> Iterator[None]:
    """Have the first Ctrl-C start no further request; what was seen is reported."""
    handler = signal.getsignal(signal.SIGINT)

    def stop(*_: object) -> None:
        replay.stop.set()
        signal.signal(signal.SIGINT, handler)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{name!r}: accepted: NAME:VALUE")
    return name.strip().lower(), value.strip()
