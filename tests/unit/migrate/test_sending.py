"""How one request is sent, and what becomes of the answer."""

import ssl
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.migrate.records import Request
from lmi_backend.migrate.running import Target
from tests.support.doubles.http_double import Handler, running
from tests.support.records.certificates import make_pair


class _Handler(Handler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        data = f"{self.path} {sorted(name.lower() for name in self.headers)} ".encode() + body
        lines = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nconnection: close\r\n"
        if self.path.endswith("/cut"):
            self.wfile.write(lines + b"content-length: 99\r\n\r\nab")
        elif self.path.endswith("/cut-chunk"):
            self.wfile.write(lines + b"transfer-encoding: chunked\r\n\r\n5\r\nab")
        else:
            self.wfile.write(lines + b"content-length: %d\r\n\r\n" % len(data) + data)
        self.close_connection = True


def test_a_request_is_sent_as_it_is_and_cut_answers_are_told() -> None:
    with running(_Handler) as url:
        target = Target(f"{url}/base/", headers={"X-Own": "1"})
        answer = target.send(Request("/a?b=1", b"c", "POST", {"x-own": "2", "x-more": "3"}))
        assert not answer.error
        assert answer.headers["x-a"] == "1, 2"
        assert answer.body == (b"/base/a?b=1 ['content-length', 'host', 'x-more', 'x-own'] c")
        for path in ("/cut", "/cut-chunk"):
            cut = target.send(Request(path))
            assert "the answer was cut" in cut.error
        # What HTTP cannot have is an answer that failed, not the end of the run.
        for headers in ({"a b": "c"}, {"a": "b\rc"}):
            assert target.send(Request("/", b"", "POST", headers)).error
    assert "refused" in target.send(Request("/")).error


def test_tls_needs_an_authority_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, key = make_pair(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    with running(_Handler, context) as url:
        assert "certificate verify failed" in Target(url).send(Request("/")).error
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert Target(url).send(Request("/")).status == 200


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:99999", "a:80"])
def test_what_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Target(url)
