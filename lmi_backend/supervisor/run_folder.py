"""The private folder of a `serve`: where it is made, and that it stays."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from pathlib import Path
from typing import Final

from lmi_backend.endpoint.address import endpoint_folder, endpoint_name
from lmi_backend.errors import ConfigurationError
from lmi_backend.files import private_folder
from lmi_backend.printable import printable, say

_PREFIX: Final = "lmi-serve-"
NOEXEC: Final = "is mounted noexec, and programs run there"
_INSTEAD: Final = ("/tmp", "/var/tmp")  # noqa: S108  a folder of mode 0700 is made there
# sun_path of unix(7), with its final 0.
_LONGEST_SOCKET: Final = 107
_LONGEST_NAME: Final = len("lmi-serve-12345678")
# vLLM's sockets are named after a UUID, in a folder of the workers.
_ENGINE_SOCKET: Final = len("/lmi-12345678/") + 36
_STRANGE: Final = re.compile(r"[^A-Za-z0-9/._+=:,@%^-]")
"""Not for a Triton that starts stubs through a shell: it quotes nothing, and the locale is C."""


class RunFolder:
    """A folder of mode 0700, for sockets, Triton's models and its backends.

    It is locked, so that systemd-tmpfiles does not clean it; what another cleaner removes is
    written again.
    """

    def __init__(self) -> None:
        self.path = _make()
        self._contents: dict[Path, tuple[int, bytes]] = {}
        self._lock = _locked(self.path)

    def keep(self) -> None:
        """Remember all files that are in it now: some megabytes."""
        files = (path for path in self.path.rglob("*") if path.is_file())
        self._contents = {path: (path.stat().st_mode, path.read_bytes()) for path in files}

    def restore(self) -> bool:
        """Write what was removed of it since; return whether something was.

        Raises:
            ConfigurationError: somebody else has made a folder of its name.
            OSError: it cannot be written.
        """
        missing = [path for path in self._contents if not path.is_file()]
        if not missing and self.path.is_dir():
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        private_folder(self.path)
        os.close(self._lock)
        self._lock = _locked(self.path)
        for path in missing:
            path.parent.mkdir(parents=True, exist_ok=True)
            mode, data = self._contents[path]
            draft = path.with_name(f"{path.name}.new")
            draft.write_bytes(data)
            draft.chmod(mode)
            draft.replace(path)
        say(f"{self.path}: was deleted while it is in use; it is written again", "WARNING")
        return True


def check_folder() -> None:
    """Make the folder and remove it again; raise ConfigurationError if it cannot be had."""
    _make().rmdir()


def shell_problem(path: Path) -> str:
    """Return what in a path a Triton before 25.08 cannot hand to its shell; empty if nothing is."""
    if not (strange := sorted(set(_STRANGE.findall(str(path))))):
        return ""
    listed = " ".join(ascii(char) for char in strange)
    accepted = "ASCII letters, digits and / . _ + = : , @ % ^ -"
    return f"has {listed}, and this Triton starts models through a shell; accepted: {accepted}"


def _make() -> Path:
    """Make the folder where temporary files are, or in /tmp where that one is of no use."""
    try:
        # The working folder is the one that Python leaves relative.
        wanted = os.path.abspath(tempfile.gettempdir())
    except OSError as error:
        raise ConfigurationError(f"no folder for temporary files: {error}; set TMPDIR") from error
    name = printable(wanted, 300)
    problems = [f"TMPDIR {name}: {NOEXEC}"] if is_noexec(wanted) else []
    for base in sorted(dict.fromkeys((wanted, *_INSTEAD)), key=is_noexec):
        problem = shell_problem(Path(base)) or _length_problem(Path(base))
        if not problem and (made := _made_in(base)):
            if problems and base != wanted:
                say(f"{problems[0]}; {base} is used instead", "WARNING")
            return made
        problems.append(f"TMPDIR {printable(base, 300)}: {problem or 'cannot be written'}")
    raise ConfigurationError("; ".join(problems))


def is_noexec(path: str | Path) -> bool:
    """Tell whether no program in a folder can be run, since its file system is mounted so."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def _made_in(base: str) -> Path | None:
    with contextlib.suppress(OSError):
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    return None


def _length_problem(base: Path) -> str:
    folder = base / ("x" * _LONGEST_NAME)
    endpoint = endpoint_folder(folder) / f"1234567-{endpoint_name('')}.sock"
    longest = max(len(os.fsencode(endpoint)), len(os.fsencode(folder)) + _ENGINE_SOCKET)
    if longest <= _LONGEST_SOCKET:
        return ""
    size = len(os.fsencode(base))
    most = size - (longest - _LONGEST_SOCKET)
    return f"has {size} bytes; Unix sockets allow at most {most} there"


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):  # Some network file systems have no locks.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return descriptor
