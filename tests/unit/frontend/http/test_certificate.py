"""A certificate and its key: what is refused, and what a change of the files does."""

import logging
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from lmi_backend.errors import ConfigurationError
from lmi_backend.frontend.http.certificate import Certificate
from tests.support.records.certificates import make_pair
from tests.support.run.ports import ANY_PORTS


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("pairs")
    return {name: make_pair(folder / name, name) for name in ("first", "second")}


@pytest.fixture
def files(pairs: dict[str, tuple[Path, Path]], tmp_path: Path) -> tuple[Path, Path]:
    """A pair that a test may change."""
    return put(pairs["first"], tmp_path)


def put(pair: tuple[Path, Path], folder: Path) -> tuple[Path, Path]:
    certificate, key = (folder / path.name for path in pair)
    for path, place in zip(pair, (certificate, key), strict=True):
        shutil.copy(path, place)
    return certificate, key


def served(certificate: Certificate, pair: tuple[Path, Path]) -> bool:
    """Tell whether a new connection gets a pair's certificate."""
    asks = ssl.create_default_context(cafile=str(pair[0]))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asks.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    server = certificate.context.wrap_bio(outgoing, incoming, server_side=True)
    for _ in range(3):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                return False
    assert client.version() == "TLSv1.3"
    return True


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tls.crt": None}, "tls.crt (--tls-certificate): No such file"),
        ({"tls.key": None}, "tls.key (--tls-key): No such file"),
        ({"tls.crt": b""}, "(--tls-certificate): accepted: certificates in PEM"),
        ({"tls.key": b"\x30\x82"}, "(--tls-key): accepted: a private key in PEM"),
        ({"tls.crt": b"-----BEGIN CERTIFICATE-----\nnone"}, "accepted: a certificate and its key"),
        (
            {"tls.key": b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n"},
            "is encrypted; accepted: a key without a passphrase",
        ),
    ],
)
def test_what_cannot_be_used_is_named(
    wrong: dict[str, bytes | None], message: str, files: tuple[Path, Path]
) -> None:
    for name, data in wrong.items():
        path = files[0].with_name(name)
        path.unlink()
        if data is not None:
            path.write_bytes(data)
    with pytest.raises(ConfigurationError) as refused:
        Certificate(*files)
    assert message in str(refused.value)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_passphrase(
    files: tuple[Path, Path],
) -> None:
    encrypted = files[1].with_name("encrypted.key")
    command = ["openssl", "ec", "-aes128", "-in", files[1], "-out", encrypted, "-passout", "pass:a"]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(ConfigurationError, match="is encrypted"):
        Certificate(files[0], encrypted)


def test_anothers_key_is_refused(pairs: dict[str, tuple[Path, Path]]) -> None:
    with pytest.raises(ConfigurationError, match="belongs to another; accepted: the key of"):
        Certificate(pairs["first"][0], pairs["second"][1])


@pytest.mark.parametrize("command", ["serve", "frontend"])
@pytest.mark.parametrize("option", ["--tls-certificate", "--tls-key"])
def test_one_without_the_other_is_refused(
    command: str, option: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    ports = ANY_PORTS if command == "serve" else ["--port=0"]
    assert main([command, f"{option}={files[0]}", *ports]) == 2
    assert f": is missing next to {option}; accepted: both, or neither" in capsys.readouterr().err


async def test_a_new_pair_is_for_new_connections(
    pairs: dict[str, tuple[Path, Path]], files: tuple[Path, Path]
) -> None:
    certificate = Certificate(*files)
    assert served(certificate, pairs["first"])
    put(pairs["second"], files[0].parent)
    await certificate.renew()
    assert served(certificate, pairs["first"]), "it may be half written"
    await certificate.renew()
    assert served(certificate, pairs["second"])
    assert not served(certificate, pairs["first"])


async def test_a_broken_pair_is_said_once_and_the_old_one_stays(
    pairs: dict[str, tuple[Path, Path]], files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    certificate = Certificate(*files)
    shutil.copy(pairs["second"][0], files[0])
    for _ in range(5):
        await certificate.renew()
    assert served(certificate, pairs["first"])
    files[0].unlink()
    for _ in range(5):
        await certificate.renew()
    assert served(certificate, pairs["first"])
    messages = [record.message for record in caplog.records]
    assert len(messages) == 2
    assert "left as it was" in messages[0]
    assert "belongs to another" in messages[0]
    assert "No such file" in messages[1]
    put(pairs["second"], files[0].parent)
    for _ in range(5):
        await certificate.renew()
    assert served(certificate, pairs["second"])
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "INFO"]


@pytest.mark.parametrize("error", [RuntimeError("odd"), MemoryError()])
async def test_whatever_fails_at_the_files_the_server_goes_on(
    files: tuple[Path, Path],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fail(*_: object) -> bytes:
        raise error

    certificate = Certificate(*files)
    monkeypatch.setattr("lmi_backend.frontend.http.certificate.content_of", fail)
    files[1].touch()
    for _ in range(5):
        await certificate.renew()
    (message,) = caplog.messages
    assert message.startswith("the TLS certificate is left as it was")
