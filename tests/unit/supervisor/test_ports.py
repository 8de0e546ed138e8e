import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.supervisor.ports import Ports, check_free, wait_until_well

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
        Ports("127.0.0.1", **FREE | {name: taken}).check()
    text = str(refusal.value)
    assert text.startswith(f"--{name}-port {taken} on 127.0.0.1: Address already in use")
    assert text.endswith("; choose another port")


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 65536), ("127.0.0.1", -1), ("192.0.2.1", 0), ("::z", 0)]
)
def test_what_cannot_be_listened_on_is_refused(host: str, port: int) -> None:
    with pytest.raises(ConfigurationError, match=f"--http-port {port} on {host}: "):
        Ports(host, **FREE | {"http": port}).check()


def test_a_port_that_others_share_is_taken() -> None:
    with socket.socket() as listener:
        # As the processes of another front end do.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"^--port {port} on 127.0.0.1: Address"):
            check_free("--port", "127.0.0.1", port)


def test_free_ports_are_fine() -> None:
    Ports("127.0.0.1", **FREE).check()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("10.1.2.3", "http://10.1.2.3:8000"),
    ],
)
def test_the_url_is_one_a_client_here_can_use(host: str, url: str) -> None:
    assert Ports(host, 8000, 8001, 8002).url == url


def test_a_front_end_is_waited_for_until_it_is_well_and_not_for_ever() -> None:
    said = [503, 503, 200]

    class FrontEnd(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/ping"
            self.send_response(said.pop(0))
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), FrontEnd) as server:
        threading.Thread(target=server.serve_forever).start()
        wait_until_well("127.0.0.1", server.server_port, 60, has_tls=False)
        assert not said
        server.shutdown()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        wait_until_well("127.0.0.1", silent.getsockname()[1], 0.05, has_tls=False)
