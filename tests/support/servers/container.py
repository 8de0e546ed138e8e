"""What a container is, as far as this machine makes one: namespaces, and little that may be done.

Root is not to be written to, the user is no root, and the network is its own; what a container's
image has is this machine's.
"""

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.run.places import ROOT
from tests.support.run.waiting import wait_for

WRITABLE = "/srv/cache"
"""The only folder beside /dev/shm and /tmp, where Triton's Python backend has to write."""
_INSIDE = """\
set -e
ip link set lo up
mount -t tmpfs -o size=1g,mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /srv
mkdir /srv/cache /srv/model
mount -t tmpfs -o mode=1777 tmpfs /srv/cache
cp -r "$1/." /srv/model
[ -e /opt/ml/model ] || { mount -t tmpfs tmpfs /opt; mkdir -p /opt/ml/model; }
mount --bind /srv/model /opt/ml/model
# Unless this clone is there.
case $2 in /tmp/*) mount --bind /tmp /tmp ;; *) mount -t tmpfs -o mode=1777 tmpfs /tmp ;; esac
while read -r _ place kind _; do
  case $kind:$place in
    *:/srv/cache | *:/tmp | *:/dev/shm | *:/dev | *:/dev/* | proc:* | sysfs:*) ;;
    *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;;
  esac
done < /proc/self/mounts
shift 2
# Seen from outside it is root, who owns the files here; inside it is nobody special.
exec setpriv --no-new-privs unshare --user --map-user=1001 --map-group=1001 env -i "$@"
"""


def why_not() -> str:
    """Return what keeps this machine from it; empty if nothing does."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if missing := [
        name for name in ("ip", "unshare", "setpriv", "nsenter") if not shutil.which(name)
    ]:
        return f"no {', '.join(missing)}: apt-get install iproute2 util-linux"
    words = ["unshare", "--mount", "--net", "--pid", "--fork", "unshare", "--user", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"no namespaces: {done.stderr.strip()}" if done.returncode else ""


@dataclass(frozen=True)
class Container:
    """A command in it, as its first process."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def inside(self) -> int:
        """The process id, from outside, of its first process."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(path.read_text("ascii").split()[0])

    def ask(self, method: str, path: str, body: Any = None, port: int = 8080) -> tuple[int, Any]:
        """Return status and JSON of an answer to who asks from inside."""
        code = (
            "import http.client, sys\n"
            "port, method, path, body = sys.argv[1:]\n"
            "client = http.client.HTTPConnection('127.0.0.1', int(port), timeout=30)\n"
            "client.request(method, path, body or None)\n"
            "answer = client.getresponse()\n"
            "print(answer.status, answer.read().decode())"
        )
        data = json.dumps(body) if body is not None else ""
        net = f"--net=/proc/{self.inside}/ns/net"
        words = ["nsenter", net, sys.executable, "-c", code, str(port), method, path, data]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise http.client.HTTPException(done.stderr)
        status, _, text = done.stdout.partition(" ")
        return int(status), json.loads(text) if text.strip() else None

    def wait_for_ping(self) -> None:
        def is_healthy() -> bool:
            assert self.process.poll() is None, self.log.read_text("utf-8", "replace")
            with contextlib.suppress(http.client.HTTPException, OSError, IndexError):
                return self.ask("GET", "/ping")[0] == 200
            return False

        wait_for(is_healthy)


@contextlib.contextmanager
def container(
    model: Path, environment: Mapping[str, str], words: list[str], log: Path
) -> Iterator[Container]:
    """Run a command in it, with a copy of a folder at /opt/ml/model."""
    outer = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    given = {"PATH": os.environ["PATH"], "HOME": WRITABLE, **environment}
    pairs = [f"{name}={value}" for name, value in given.items()]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*outer, "sh", "-c", _INSIDE, "sh", str(model), str(ROOT), *pairs, *words],
            stdout=output,
            stderr=output,
        )
        try:
            yield Container(process, log)
        finally:
            process.kill()
            process.wait()
