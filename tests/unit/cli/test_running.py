"""Commands for a running server."""

import pytest

from lmi_backend.cli.main import main


@pytest.mark.parametrize("worker", ["x", "-1", ""])
def test_a_worker_is_named_by_its_number(worker: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["drain", f"--worker={worker}"])
    assert end.value.code == 2
    assert f"--worker: {worker}; accepted: a number, or all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("127.0.0.1:1", "nothing listens there"),
        ("192.0.2.1:80", "no process of this user listens there"),
        ("no-such-host.invalid:80", "no process of this user listens there"),
    ],
)
def test_where_no_server_is_drain_says_so(
    host: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drain", f"http://{host}"]) == 1
    assert problem in capsys.readouterr().err
