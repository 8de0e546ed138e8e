"""The front end over TLS: real clients, a new certificate under way, and those who attack it."""

import contextlib
import json
import os
import shlex
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.answers.streams import request_of
from tests.support.harm.attackers import ECHO
from tests.support.records.certificates import make_pair
from tests.support.run.ports import listens
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served, front_end, serve, write_properties

LONG = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 90_000}}
"""Half an hour: a busy machine takes minutes to read a certificate."""
MODEL = ECHO | {"option.max_model_len": 100_000}
PROCESSES = 2


@dataclass
class Secret:
    """A folder as Kubernetes mounts a secret: links to a folder that a link names."""

    folder: Path

    @property
    def options(self) -> tuple[str, ...]:
        pair = self.folder / "tls.crt", self.folder / "tls.key"
        return f"--tls-certificate={pair[0]}", f"--tls-key={pair[1]}"

    def put(self, name: str) -> Path:
        """Make a new pair, or use a known one, at once for both files."""
        place = self.folder / f"..{name}"
        if not place.exists():
            make_pair(place, name)
        (self.folder / "..data_tmp").symlink_to(place.name)
        os.replace(self.folder / "..data_tmp", self.folder / "..data")
        for file in ("tls.crt", "tls.key"):
            if not (self.folder / file).is_symlink():
                (self.folder / file).symlink_to(f"..data/{file}")
        return place / "tls.crt"


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Secret:
    made = Secret(tmp_path_factory.mktemp("secret"))
    made.put("first")
    return made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, secret: Secret) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tls")
    options = (*secret.options, f"--frontend-processes={PROCESSES}")
    with serve([write_properties(folder / "echo", MODEL)], folder, *options) as server:
        server.tls = trust(secret.folder / "..first" / "tls.crt")
        wait_for(lambda: listens(server.port) and server.ask("/ping")[0] == 200)
        yield server


def trust(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


@contextlib.contextmanager
def connected(server: Served, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    address = ("127.0.0.1", server.port)
    with (
        socket.create_connection(address, timeout=HANG_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        yield connection


def get_certificates(server: Served, context: ssl.SSLContext, count: int) -> set[bytes | None]:
    """Return the certificates of some new connections; the processes share them."""
    seen = set()
    for _ in range(count):
        with connected(server, context) as connection:
            seen.add(connection.getpeercert(binary_form=True))
    return seen


@contextlib.contextmanager
def streaming(server: Served) -> Iterator[ssl.SSLSocket]:
    """Begin a long answer."""
    assert server.tls is not None
    with connected(server, server.tls) as connection:
        connection.sendall(request_of("/invocations", json.dumps(LONG).encode()))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        yield connection


def test_the_greeting_is_a_command_that_works(served: Served) -> None:
    (line,) = (line for line in served.greeting.splitlines() if line.startswith("  curl"))
    assert f"https://127.0.0.1:{served.port}/invocations" in line
    done = subprocess.run(shlex.split(line), capture_output=True, check=True)
    assert "generated_text" in json.loads(done.stdout)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_from_1_2_on(served: Served, secret: Secret, version: ssl.TLSVersion) -> None:
    context = trust(secret.folder / "..first" / "tls.crt")
    context.minimum_version = context.maximum_version = version
    with connected(served, context) as connection:
        assert connection.version() == version.name.replace("_", ".")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_older_tls_is_refused(served: Served, secret: Secret) -> None:
    context = trust(secret.folder / "..first" / "tls.crt")
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        pytest.raises(ssl.SSLError, match=r"alert protocol version|EOF occurred|closed \(EOF\)"),
        connected(served, context),
    ):
        pass


@pytest.fixture(scope="module")
def half(served: Served) -> Iterator[list[socket.socket]]:
    """Connections that never get to the end of a handshake."""
    address = ("127.0.0.1", served.port)
    half = [socket.create_connection(address, timeout=HANG_SECONDS) for _ in range(200)]
    for connection in half[:100]:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01")
    yield half
    for connection in half:
        connection.close()


@pytest.mark.parametrize(
    "data",
    [b"GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\x16\x03\x01\xff\xff" * 9999, b"\r\n" * 9],
)
@pytest.mark.usefixtures("half")
def test_what_is_no_tls_costs_nobody_an_answer(served: Served, data: bytes) -> None:
    answer = b""
    address = ("127.0.0.1", served.port)
    with (
        contextlib.suppress(OSError),
        socket.create_connection(address, timeout=HANG_SECONDS) as plain,
    ):
        plain.sendall(data)
        answer = plain.recv(100)
    assert b"HTTP" not in answer
    assert served.ask("/ping")[0] == 200


def test_a_new_pair_is_for_new_connections_and_a_broken_one_for_none(
    served: Served, secret: Secret
) -> None:
    warning = "the TLS certificate is left as it was"
    assert served.tls is not None
    (first,) = get_certificates(served, served.tls, 1)
    broken = secret.folder / "..broken"
    make_pair(broken, "broken")[1].write_bytes(b"-----BEGIN PRIVATE KEY-----\n")
    with streaming(served) as old:
        secret.put("broken")
        wait_for(lambda: served.log().count(warning) == PROCESSES)
        assert get_certificates(served, served.tls, 10) == {first}
        second = trust(secret.put("second"))
        wait_for(lambda: served.log().count("certificate is read again") == PROCESSES)
        (now,) = get_certificates(served, second, 10)
        assert now != first
        served.tls = second
        assert served.ask("/ping")[0] == 200
        # The old stream has gone on meanwhile, and continues.
        answer = b""
        while answer.count(b'"token"') < 300:
            part = old.recv(65536)
            assert part, answer
            answer += part
    assert served.log().count(warning) == PROCESSES


def test_half_a_handshake_ends_and_is_no_traceback(
    served: Served, half: list[socket.socket]
) -> None:
    for connection in half:
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert served.ask("/ping")[0] == 200
    assert "Traceback" not in served.log()
    assert "handshake" not in served.log()


def test_a_front_end_ends_although_clients_say_no_farewell(secret: Secret, tmp_path: Path) -> None:
    context = trust(secret.put("first"))
    with (
        front_end(tmp_path, f"--run-folder={tmp_path}", *secret.options) as server,
        contextlib.ExitStack() as stack,
    ):
        idle = stack.enter_context(connected(server, context))
        idle.sendall(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 200")
        half = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        # `serve` kills what takes ten seconds.
        assert server.stop() == 0
