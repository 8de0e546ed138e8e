import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import combinations
from pathlib import Path

import pytest

import lmi_backend
from lmi_backend.errors import ConfigurationError
from lmi_backend.supervisor.ports import Ports, check_free
from lmi_backend.supervisor.triton_http import TritonHttp

NO_BRACKETS = str.maketrans("", "", "[]")
# 0 lets the system choose a free one.
FREE = {"http": 0, "grpc": 0, "metrics": 0}


@pytest.fixture
def taken() -> Iterator[int]:
    """A port somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("name", FREE)
def test_a_taken_port_is_named_with_its_option(name: str, taken: int) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Ports("127.0.0.1", **FREE | {name: taken}).check({})
    text = str(refusal.value)
    assert text.startswith(f"--{name}-port {taken} on 127.0.0.1: Address already in use")
    assert text.endswith(f"; choose another port (--{name}-port) or address (--triton-host)")


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", 65536),
        ("::1", -1),
        ("192.0.2.1", 0),
        ("2001:db8::1", 0),
        ("::z", 0),
        ("nobody.invalid", 0),
        ("a" * 70, 0),
    ],
)
def test_what_cannot_be_listened_on_is_refused(host: str, port: int) -> None:
    message = rf"--http-port {port} on {host}: .+; choose another port \(--http-port\)"
    with pytest.raises(ConfigurationError, match=message):
        Ports(host, **FREE | {"http": port}).check({})


@pytest.mark.parametrize(
    ("name", "other"),
    [*combinations(["--http-port", "--grpc-port", "--metrics-port", "--port"], 2)],
)
def test_a_port_that_is_given_twice_is_named_with_both_options(name: str, other: str) -> None:
    given = dict.fromkeys((name, other), 4711)
    own = {each: given.get(f"--{each}-port", 0) for each in FREE}
    message = f"^{name} 4711 and {other} 4711: accepted: a port each$"
    with pytest.raises(ConfigurationError, match=message):
        Ports("127.0.0.1", **own).check({"--port": given.get("--port", 0)})


def test_a_port_that_others_share_is_taken() -> None:
    with socket.socket() as listener:
        # As the processes of another front end do.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"^--port {port} on 127.0.0.1: Address"):
            check_free("--port", "--host", "127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
        ("localhost", "http://localhost:8000"),
        ("10.1.2.3", "http://10.1.2.3:8000"),
    ],
)
def test_the_url_is_one_a_client_here_can_use(host: str, url: str) -> None:
    ports = Ports(host, 8000, 8001, 8002)
    assert ports.url == url
    assert ports.metrics_url == url.replace("8000", "8002/metrics")
    client = TritonHttp(ports.url)
    assert f"{client.host}:{client.port}" == url.removeprefix("http://").translate(NO_BRACKETS)


@pytest.mark.parametrize(
    ("host", "http", "grpc"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        # Triton's HTTP server takes an address without this for 255.255.255.255.
        ("::1", "ipv6:::1", "[::1]"),
        ("::", "ipv6:::", "[::]"),
    ],
)
def test_triton_is_given_addresses_as_it_reads_them(host: str, http: str, grpc: str) -> None:
    assert Ports(host, 8000, 8001, 8002).arguments() == [
        f"--http-address={http}",
        "--http-port=8000",
        f"--grpc-address={grpc}",
        "--grpc-port=8001",
        f"--metrics-address={http}",
        "--metrics-port=8002",
    ]


def test_triton_is_given_no_names() -> None:
    assert Ports("localhost", 8000, 8001, 8002).arguments()[2] in (
        "--grpc-address=127.0.0.1",
        "--grpc-address=[::1]",
    )


def test_no_module_puts_a_host_into_a_url_by_itself() -> None:
    """An IPv6 address needs brackets: `url_of` sets them."""
    package = Path(lmi_backend.__file__).parent
    found = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"://\{[^}]*\}:", path.read_text())
    ]
    assert found == ["supervisor/ports.py"]


def test_a_front_end_is_well_when_it_says_so() -> None:
    statuses = [503, 200]

    class FrontEnd(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.pop(0))
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), FrontEnd) as server:
        threading.Thread(target=server.serve_forever).start()
        client = TritonHttp(f"127.0.0.1:{server.server_port}")
        assert [client.is_well("/ping"), client.is_well("/ping")] == [False, True]
        server.shutdown()
    assert not client.is_well("/ping")
