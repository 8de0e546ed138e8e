"""A body's media URL must not make the server ask hosts for its client.

vLLM's own connector fetches, in the engine's environment, and a server here counts who connects.
"""

import base64
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from lmi_backend.clients.openai_bodies import read_chat
from lmi_backend.engines.vllm.media import MediaRules
from lmi_backend.errors import OptionError, RequestError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import Property
from tests.support.run.places import ENGINE_PYTHON, ROOT, SCRIPTS, TINY

REFUSED = "VLLMValidationError"  # vLLM's server makes it a 400


DATA_URL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2"
    "FzhVAAAAAElFTkSuQmCC"
)
PNG = base64.b64decode(DATA_URL.partition(",")[2])


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        to = ["/ring"] if self.path == "/ring" else parse_qs(urlsplit(self.path).query).get("to")
        self.server.headers.append(dict(self.headers))  # type: ignore[attr-defined]
        self.send_response(302 if to else 200)
        if to:
            self.send_header("Location", to[0])
        self.send_header("Set-Cookie", "who=one")
        self.send_header("Content-Length", str(len(PNG)))
        self.end_headers()
        self.wfile.write(PNG)


class _Server(ThreadingHTTPServer):
    """Listens on all addresses of this machine."""

    daemon_threads = True
    reached: list[str]
    """The address of each connection, whatever was said on it."""
    headers: list[dict[str, str]]

    def get_request(self) -> Any:
        connection, client = super().get_request()
        self.reached.append(connection.getsockname()[0])
        return connection, client


@pytest.fixture(scope="module")
def listening() -> Iterator[_Server]:
    server = _Server(("0.0.0.0", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server(listening: _Server) -> _Server:
    listening.reached, listening.headers = [], []
    return listening


@dataclass
class Connector:
    process: "subprocess.Popen[str]"
    port: int
    is_async: bool
    names: dict[str, list[str]] = field(default_factory=dict)

    def fetch(self, url: str, hosts: list[str] | None, **more: Any) -> tuple[str, str]:
        """Return the error's class, empty for none, and its text; PORT is the server's."""
        case = {"url": url.replace("PORT", str(self.port)), "hosts": hosts, "names": self.names}
        case |= {"folder": "", "is_async": self.is_async, "vllm_hosts": None}
        case |= {"is_unhooked": False} | more
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["error"], answer["text"]


@pytest.fixture(scope="module")
def process(listening: _Server) -> Iterator["subprocess.Popen[str]"]:
    proxy = f"http://127.0.0.2:{listening.server_address[1]}"
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "VLLM_TARGET_DEVICE": "cpu",
        # Neither is asked, or the counts below are wrong.
        "http_proxy": proxy,
        "https_proxy": proxy,
        "NO_PROXY": "",
    }
    command = [*map(str, (ENGINE_PYTHON, SCRIPTS / "media_process.py", TINY / "llama"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield started
        assert started.stdin is not None
        started.stdin.close()


@pytest.fixture(params=[True, False], ids=["chat", "score"])
def connector(
    process: "subprocess.Popen[str]", server: _Server, request: pytest.FixtureRequest
) -> Connector:
    return Connector(process, server.server_address[1], request.param)


def test_vllm_alone_asks_this_machine(connector: Connector, server: _Server) -> None:
    """What is prevented; and that the server would have seen it."""
    assert connector.fetch("http://127.0.0.1:PORT/", None)[0] == ""
    # Its own list of hosts does not see where a redirect leads, or a name.
    url = "http://images.example:PORT/?to=http://127.0.0.1:PORT/"
    connector.names = {"images.example": ["127.0.0.1"]}
    listed = ["images.example"]
    assert connector.fetch(url, None, vllm_hosts=listed)[0] == ""
    assert len(server.reached) > 2


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:PORT/image.png",
        "HTTP://LOCALHOST:PORT/image.png",
        "https://127.0.0.1:PORT/image.png",
        "http://nowhere.invalid:PORT/",
        "http://169.254.169.254/latest/meta-data/",
    ],
)
def test_by_default_no_host_is_asked(connector: Connector, server: _Server, url: str) -> None:
    connector.names = {"nowhere.invalid": ["127.0.0.1"]}
    error, text = connector.fetch(url, [])
    assert error == REFUSED
    assert "only data: URLs are accepted; option.allowed_media_domains" in text
    assert server.reached == []


@pytest.mark.parametrize("hosts", [[], ["*", "127.0.0.0/8"]])
def test_where_our_rules_are_not_in_force_no_host_is_asked(
    connector: Connector, server: _Server, hosts: list[str]
) -> None:
    """As if vLLM had moved what they hook into: what it was given for its own list is left."""
    url = "http://127.0.0.1:PORT/"
    error, text = connector.fetch(url, hosts, is_unhooked=True)
    assert error == "ValueError"
    assert "allowed domains" in text
    assert server.reached == []


@pytest.mark.parametrize("hosts", [[], ["images.example"], ["*"]])
def test_data_is_always_taken(connector: Connector, hosts: list[str]) -> None:
    assert connector.fetch(DATA_URL, hosts) == ("", "(1, 1)")
    assert connector.fetch("DATA" + DATA_URL[4:], hosts) == ("", "(1, 1)")


def test_files_are_read_from_the_allowed_folder_only(connector: Connector, tmp_path: Path) -> None:
    inside, outside = tmp_path / "in" / "a.png", tmp_path / "out.png"
    inside.parent.mkdir()
    for path in (inside, outside):
        path.write_bytes(PNG)
    link = inside.with_name("link.png")
    link.symlink_to(outside)
    folder = str(inside.parent)
    asked = [
        connector.fetch(f"file://{path}", ["*"], folder=allowed)
        for path, allowed in [(inside, ""), (inside, folder), (outside, folder), (link, folder)]
    ]
    assert asked[0][0] == REFUSED
    assert "option.allowed_local_media_path" in asked[0][1]
    assert asked[1] == ("", "(1, 1)")
    assert all(error == "ValueError" for error, _ in asked[2:])


PRIVATE = [
    "127.0.0.1", "127.0.0.2", "127.1", "127.0.0.1.", "2130706433", "0x7f000001", "0x7f.1",
    "0177.0.0.1", "017700000001", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "localhost",
    "LOCALHOST", "localhost.", "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3",
    "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "%31%32%37.0.0.1", "mine.example",
    "mapped.example", "images.example@127.0.0.1", "images.example:x@127.0.0.1",
    "images.example\\@127.0.0.1", "127.0.0.1\\@images.example", "127.0.0.1#@images.example",
    "127.0.0.1?@images.example", "12\t7.0.0.1", " 127.0.0.1", "127.0.0.1%00.images.example",
]  # fmt: skip
NAMES = {
    "mine.example": ["127.0.0.1"],
    "mapped.example": ["::ffff:127.0.0.1", "127.0.0.2"],
    # Not every machine knows it with its dot.
    "localhost.": ["127.0.0.1"],
}


@pytest.mark.parametrize("host", PRIVATE)
def test_no_spelling_of_a_private_address_is_connected_to(
    connector: Connector, server: _Server, host: str
) -> None:
    connector.names = NAMES
    for url in (f"http://{host}:PORT/", f"http://{host}"):
        error, _ = connector.fetch(url, ["*"])
        # The second is a ValueError, which is a 400 too; the last asks for the host before `\\@`.
        assert error in (REFUSED, "LocationParseError", "ClientConnectorDNSError")
    assert server.reached == []


def test_the_machines_own_address_is_not_public(connector: Connector, server: _Server) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but its own loopback")
        own = probe.getsockname()[0]
    assert connector.fetch(f"http://{own}:PORT/", ["*"])[0] == REFUSED
    assert server.reached == []
    rules = MediaRules(["*"], own=["8.8.4.4"])
    assert not rules.may_connect("8.8.4.4")
    assert rules.may_connect("8.8.8.8")


def test_a_listed_name_needs_its_private_address_listed_too(
    connector: Connector, server: _Server
) -> None:
    connector.names = {"images.example.": ["127.0.0.2", "127.0.0.1"]}
    url = "http://Images.Example.:PORT/"
    error, text = connector.fetch(url, ["images.example"])
    assert error == REFUSED
    assert "option.allowed_media_domains must list the private one" in text
    assert server.reached == []
    listed = ["images.example", "127.0.0.1/32"]
    assert connector.fetch(url, listed) == ("", "(1, 1)")
    assert server.reached == ["127.0.0.1"]


def test_a_name_that_changes_its_address_is_looked_at_again(
    connector: Connector, server: _Server
) -> None:
    listed = ["images.example", "127.0.0.1"]
    for address in ("127.0.0.1", "127.0.0.2"):
        connector.names = {"images.example": [address]}
        error, _ = connector.fetch("http://images.example:PORT/", listed)
        assert error == (REFUSED if address == "127.0.0.2" else "")
    assert server.reached == ["127.0.0.1"]


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2:PORT/",
        "//127.0.0.2:PORT/",
        "http://localhost:PORT/",
        "http://other.example:PORT/",
        "http://images.example@127.0.0.2:PORT/",
        "http://2130706434:PORT/",
        "http://[::ffff:127.0.0.2]:PORT/",
        "http://169.254.169.254/",
        "file:///etc/hostname",
        "gopher://127.0.0.2:PORT/",
        DATA_URL,
    ],
)
def test_a_redirect_leads_nowhere_else(connector: Connector, server: _Server, target: str) -> None:
    connector.names = {"images.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    url = f"http://images.example:PORT/?to={target.replace('+', '%2B')}"
    error, _ = connector.fetch(url, ["images.example", "127.0.0.1"])
    assert error == REFUSED
    assert server.reached == ["127.0.0.1"]


def test_a_redirect_within_the_list_is_followed_and_a_ring_is_not(
    connector: Connector, server: _Server
) -> None:
    connector.names = {"images.example": ["127.0.0.1"], "other.example": ["127.0.0.2"]}
    listed = ["images.example", "other.example", "127.0.0.0/30"]
    url = "http://images.example:PORT/?to=http://other.example:PORT/"
    assert connector.fetch(url, listed) == ("", "(1, 1)")
    assert server.reached == ["127.0.0.1", "127.0.0.2"]
    # Nothing that one host said is told to the next.
    assert not any("Cookie" in headers for headers in server.headers)
    server.reached.clear()
    error, text = connector.fetch("http://images.example:PORT/ring", listed)
    assert error == REFUSED
    assert "redirects more than 5 times" in text
    assert len(server.reached) == 6


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3", "172.16.0.1", "192.168.0.1", "100.100.100.200", "169.254.169.254",
        "168.63.129.16", "192.0.0.192", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254",
        "fd20:ce::254", "ff02::1", "2001:db8::1", "2001::1", "2002:a00:1::", "64:ff9b::10.0.0.1",
        "64:ff9b:1::1", "::ffff:10.0.0.1", "::10.0.0.1", "fec0::1", "not an address", "127.1", "",
    ],
)  # fmt: skip
def test_what_is_not_public_is_not_connected_to(address: str) -> None:
    assert not MediaRules(["*"]).may_connect(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "::ffff:8.8.8.8", "2606:4700::1", "64:ff9b::8.8.8.8"]
)
def test_what_is_public_is(address: str) -> None:
    assert MediaRules(["*"]).may_connect(address)


def test_no_list_opens_link_local_addresses() -> None:
    rules = MediaRules(["*", "0.0.0.0/0", "::/0"])
    assert rules.may_connect("10.0.0.1")
    for address in ("169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254"):
        assert not rules.may_connect(address)
        assert rules.refusal(address)


@pytest.mark.parametrize(
    "text",
    [
        "https://images.example", "images.example:443", "images.example/a", "*.example", "a b",
        "10.1.2.3/8", "127.1", "0x7f000001", "2130706433", "169.254.169.254", "fe80::/64", "",
    ],
)  # fmt: skip
def test_a_list_that_would_not_mean_what_it_says_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"option\.allowed_media_domains"):
        _resolve(f"images.example, {text or '::'}")


def test_a_list_is_read_in_both_forms() -> None:
    read = ["images.example", "*", "10.2.0.0/16", "::1"]
    assert _resolve("Images.Example., *,10.2.0.0/16,::1") == read
    assert _resolve(json.dumps(read)) == read


def _resolve(text: str) -> Any:
    key = "option.allowed_media_domains"
    return resolve_options([Property(key, text, 1)], {}, folder=Path()).values[key]


@pytest.mark.parametrize("kind", ["image_url", "audio_url", "video_url", "input_audio"])
def test_engines_without_eyes_take_no_media(server: _Server, kind: str) -> None:
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    part = {"type": kind, kind: {"url": url}}
    with pytest.raises(RequestError, match="a part that is not text"):
        read_chat({"messages": [{"role": "user", "content": [part]}]})
    assert server.reached == []
