"""Targets of requests in each of their four forms, and what RFC 9112 makes of them."""

import pytest
from httptools import HttpParserInvalidURLError

from lmi_backend.frontend.http.protocol import names_one_host, target_of

OTHERS = [(b"accept", b"*/*"), (b"host", b"other:1")]


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"GET", b"/"),
        (b"GET", b"/v1/models?a=http://b"),
        (b"GET", b"//v1/models"),
        (b"OPTIONS", b"/v1/models"),
        (b"OPTIONS", b"*"),
        (b"CONNECT", b"a:80"),
    ],
)
def test_a_path_is_a_target_and_so_is_the_server_as_a_whole(method: bytes, target: bytes) -> None:
    headers = [*OTHERS]
    assert target_of(method, target, headers) == target
    assert headers == OTHERS


@pytest.mark.parametrize(
    ("method", "url", "target", "host"),
    [
        (b"GET", b"http://a", b"/", b"a"),
        (b"GET", b"http://a?x=1", b"/?x=1", b"a"),
        (b"POST", b"HTTPS://A.b:80/v1?x=/y", b"/v1?x=/y", b"A.b:80"),
        (b"GET", b"http://[::1]:80", b"/", b"[::1]:80"),
        (b"OPTIONS", b"http://a:8080", b"*", b"a:8080"),
        (b"OPTIONS", b"http://a/", b"/", b"a"),
        (b"OPTIONS", b"http://a?x", b"/?x", b"a"),
    ],
)
def test_the_host_of_a_url_counts_and_its_empty_path_is_a_slash(
    method: bytes, url: bytes, target: bytes, host: bytes
) -> None:
    for headers in ([*OTHERS], OTHERS[:1]):
        assert target_of(method, url, headers) == target
        assert headers == [OTHERS[0], (b"host", host)]


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"GET", b"*"),
        (b"POST", b"*"),
        (b"OPTIONS", b"*a"),
        (b"GET", b"ftp://a/"),
        (b"GET", b"http://somebody@a/"),
        (b"GET", b"http://somebody:secret@a"),
        (b"GET", b"http://"),
        (b"GET", b"http:///a"),
        (b"GET", b"http://a:99999/"),
    ],
)
def test_what_no_server_has_is_no_target(method: bytes, target: bytes) -> None:
    with pytest.raises((ValueError, HttpParserInvalidURLError)):
        target_of(method, target, [*OTHERS])


def test_only_http_1_1_must_name_its_server() -> None:
    twice = [(b"host", b"a"), (b"host", b"a")]
    assert [names_one_host(twice[:count], "1.1") for count in range(3)] == [False, True, False]
    assert [names_one_host(twice[:count], "1.0") for count in range(3)] == [True, True, False]
