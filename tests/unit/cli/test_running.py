"""Commands for a running server."""

import pytest

from tests.unit.cli.conftest import Command


@pytest.mark.parametrize("worker", ["x", "-1", ""])
def test_a_worker_is_named_by_its_number(worker: str, command: Command) -> None:
    errors = command("drain", f"--worker={worker}", status=2).err
    assert f"--worker: {worker}; accepted: a number, or all" in errors


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("127.0.0.1:1", "nothing listens there"),
        ("192.0.2.1:80", "no process of this user listens there"),
        ("no-such-host.invalid:80", "no process of this user listens there"),
    ],
)
def test_where_no_server_is_drain_says_so(host: str, problem: str, command: Command) -> None:
    assert problem in command("drain", f"http://{host}", status=1).err
