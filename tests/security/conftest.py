"""A server as `lmi-backend serve` starts it, for attackers who reach all of its ports."""

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lmi_backend.frontend.http.api_keys import hash_of
from tests.support.attackers import ANOTHER_USER, ECHO, METERED, PYTHON
from tests.support.serving import Served, serve, write_properties
from tests.support.waiting import wait_for


@pytest.fixture(scope="session")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo`, also for clients of /infer; with a key that the test can look for."""
    folder = tmp_path_factory.mktemp("attacked")
    options = ("--clients", "infer", "--control-key", str(folder / "control.key"))
    with pytest.MonkeyPatch.context() as environment:
        # Opens Triton's Vertex AI port, a way around restrictions before 26.03.
        environment.setenv("AIP_MODE", "PREDICTION")
        with serve([write_properties(folder / "echo", ECHO)], folder, *options) as server:
            environment.undo()
            yield server


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo`, whose log has a line for each request."""
    folder = tmp_path_factory.mktemp("names")
    plain = {"option.rolling_batch": "echo", "option.log_requests": "true"}
    model = write_properties(folder / "echo", plain | {"option.enable_lora": "true"})
    with serve([model], folder) as server:
        yield server


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo`, whose clients need a key; with small bounds."""
    folder = tmp_path_factory.mktemp("front")
    keys = folder / "keys"
    names = (
        "client",
        "slow running=1",
        "boss operator",
        *(f"metered{number} tokens-per-minute={METERED}" for number in range(9)),
    )
    lines = (
        " ".join((name, hash_of(f"{name}-key"), *more))
        for name, *more in (words.split() for words in names)
    )
    keys.write_text("\n".join(lines), encoding="utf-8")
    options = ("--api-keys", str(keys), "--max-body", "1000000", "--clients", "infer,raw")
    with serve([write_properties(folder / "echo", ECHO)], folder, *options) as server:
        wait_for(lambda: server.ask("/ping")[0] == 200)
        yield server


@pytest.fixture
def another_user() -> dict[str, Any]:
    """Arguments of subprocess that run a program as a user without rights."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    return ANOTHER_USER


@pytest.fixture
def as_another_user(another_user: dict[str, Any]) -> Callable[..., str]:
    """Run Python's text, with words, as a user without rights; return what it prints."""

    def run(text: str, *words: str) -> str:
        command = [PYTHON, "-I", "-c", text, *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, **another_user
        ).stdout

    return run
