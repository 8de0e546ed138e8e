"""What a recorded request brings along is sent again without its secrets."""

import json

import pytest

from lmi_backend.migrate.records import path_of, sent_headers

MARK = "mark-6f1c,tail"
"""No part of it may be sent."""
MARKED = {
    "a header's name": f"x-api-key: {MARK}",
    "a cookie": f"set-cookie: a={MARK}",
    "a query": f"referer: http://x/?a=1&api_key={MARK}&b=2",
    "a name that is escaped": f"referer: http://x/?api%5Fkey={MARK}",
    "a fragment": f"referer: http://x/a#access_token={MARK}&b=1",
    "a parameter of a path": f"location: /a;token={MARK}?b=1",
    "an attribute": "x-amzn-sagemaker-custom-attributes: a=1;token=mark-6f1c;b=2",
    "JSON": f'x-own: {{"password": "{MARK}"}}',
    "a bearer": "x-own: Bearer mark-6f1c-mark-6f1c",
    "a user": "origin: http://u:mark-6f1c@localhost",
    "a user of a host": "host: u:mark-6f1c@localhost:8080",
    "a user of a host before": "forwarded: for=1.2.3.4;host=u:mark-6f1c@localhost",
}
TARGETS = (
    f"/v1/models?api_key={MARK}&a=1",
    f"/v1/models?a=1;sig={MARK}",
    f"/v1/models#id_token={MARK}",
    "http://u:mark-6f1c@localhost/v1/models",
    f"http://localhost/v1/models?API-KEY={MARK}",
)


@pytest.mark.parametrize("mark", [*MARKED.values(), *TARGETS], ids=[*MARKED, *TARGETS])
def test_no_secret_is_sent_again(mark: str) -> None:
    target, header = (mark, "x: y") if mark in TARGETS else ("/", mark)
    name, value = header.split(": ", 1)
    again = path_of(target), sent_headers({name: value, "x-own-name": "a=b"})
    written = json.dumps(again)
    assert "mark" not in written
    assert "tail" not in written
    assert again[1]["x-own-name"] == "a=b"
