"""The front end's certificate and its key, read again when their files change.

No request waits for a file of the operator that is read again.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import read_bounded

if TYPE_CHECKING:
    from pathlib import Path


MOST_BYTES: Final = 1 << 20
Stamp = tuple[int, ...]


def stamp_of(path: Path) -> Stamp | None:
    """Return what differs after any change, also of a link on the way; None without a file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def content_of(option: str, path: Path) -> bytes:
    """Return what a file holds. Raises ConfigurationError: it is none, too large, or unreadable."""
    try:
        return read_bounded(path, MOST_BYTES)
    except OSError as error:
        problem = str(error.strerror).partition(";")[0]
        text = f"{path} ({option}): {problem}; accepted: a file of at most {MOST_BYTES} bytes"
        raise ConfigurationError(text) from error


def text_of(option: str, path: Path) -> str:
    """Return the text that a file holds; raises like `content_of`, and for what is not UTF-8."""
    data = content_of(option, path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"{path}:{line} ({option}): byte {data[error.start]:#04x}; accepted: UTF-8"
        raise ConfigurationError(message) from error


CERTIFICATE_OPTION: Final = "--tls-certificate"
KEY_OPTION: Final = "--tls-key"
_PEM_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_ENCRYPTED: Final = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")
_PEM_KEY: Final = b"PRIVATE KEY-----"
_log = logging.getLogger(__name__)


def certificate_of(file: Path | None, key: Path | None) -> Certificate | None:
    """Return the certificate in two files; None for plain HTTP. Raises ConfigurationError."""
    if file and key:
        return Certificate(file, key)
    if not file and not key:
        return None
    given, missing = (CERTIFICATE_OPTION, KEY_OPTION) if file else (KEY_OPTION, CERTIFICATE_OPTION)
    raise ConfigurationError(f"{missing}: is missing next to {given}; accepted: both, or neither")


class Certificate:
    """A pair of files, and the TLS context that a server listens with.

    Args:
        file: certificates in PEM, the server's own first, then those between it and its authority.
        key: of the first, in PEM, without a passphrase.

    Raises:
        ConfigurationError: they cannot be used.
    """

    def __init__(self, file: Path, key: Path) -> None:
        self._file, self._key = file, key
        self._used = self._seen = self._stamp()
        self.context = self._newest = self._read()
        """A context that takes the newest pair at each handshake; connections keep theirs."""
        self.context.sni_callback = self._choose

    async def renew(self) -> None:
        """Read changed files; report an unusable pair once, and keep the old one.

        A change is read at the second call that sees it: two files are seldom written at once.
        """
        stamp = self._stamp()
        if stamp == self._used or stamp != self._seen:
            self._seen = stamp
            return
        self._used = stamp
        try:
            self._newest = self._read()
        except Exception as error:  # noqa: BLE001  it would end the server's only loop
            _log.error("the TLS certificate is left as it was: %s", error)
        else:
            _log.info("the TLS certificate is read again from %s", self._file)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _stamp(self) -> tuple[Stamp | None, ...]:
        return stamp_of(self._file), stamp_of(self._key)

    def _read(self) -> ssl.SSLContext:
        if _PEM_CERTIFICATE not in content_of(CERTIFICATE_OPTION, self._file):
            accepted = "certificates in PEM, the server's own first"
            raise ConfigurationError(f"{self._file} ({CERTIFICATE_OPTION}): accepted: {accepted}")
        key = content_of(KEY_OPTION, self._key)
        if any(word in key for word in _ENCRYPTED):
            text = "is encrypted; accepted: a key without a passphrase, which only this user reads"
            raise ConfigurationError(f"{self._key} ({KEY_OPTION}) {text}")
        if _PEM_KEY not in key:
            raise ConfigurationError(f"{self._key} ({KEY_OPTION}): accepted: a private key in PEM")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # Without a passphrase here, OpenSSL would ask the terminal for one.
            context.load_cert_chain(self._file, self._key, password="")
        except (OSError, ValueError) as error:
            raise ConfigurationError(self._what_is_wrong(error)) from error
        return context

    def _what_is_wrong(self, error: Exception) -> str:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            accepted = f"the key of the first certificate in {self._file} ({CERTIFICATE_OPTION})"
            return f"{self._key} ({KEY_OPTION}) belongs to another; accepted: {accepted}"
        pair = f"{self._file} and {self._key} ({CERTIFICATE_OPTION}, {KEY_OPTION})"
        return f"{pair}: accepted: a certificate and its key, in PEM: {error}"
