"""A server as `lmi-backend serve` starts it, for attackers who reach all of its ports."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.frontend.http.api_keys import hash_of
from tests.support.harm.attackers import (
    ANOTHER_USER,
    ECHO,
    ENV,
    LOUD,
    METERED,
    PYTHON,
    RUNNING,
    SECRET,
    UNSEEN,
    WAITING,
)
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, serve, write_properties


@pytest.fixture(scope="session")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo`, also for clients of /infer; with a key that the test can look for."""
    folder = tmp_path_factory.mktemp("attacked")
    options = ("--clients", "infer", "--control-key", str(folder / "control.key"))
    with pytest.MonkeyPatch.context() as environment:
        # Opens Triton's Vertex AI port, a way around restrictions before 26.03.
        environment.setenv("AIP_MODE", "PREDICTION")
        more = {"option.log_requests": "true", "option.enable_lora": "true"}
        with serve([write_properties(folder / "echo", ECHO | more)], folder, *options) as server:
            environment.undo()
            yield server


@pytest.fixture
def echo(attacked: Served) -> Served:
    """`attacked`, once all is logged that others have asked of it."""
    before = attacked.log_file.stat().st_size
    attacked.ask("/invocations", {"inputs": "a"}, {"x-request-id": "all-is-logged"})
    attacked.logged(r"POST /invocations .*id=all-is-logged", before)
    attacked.logged(r"request model=echo .*all-is-logged", before)
    return attacked


RACE = """
import os
seen = set(os.listdir("/dev/shm"))
print("ready", flush=True)
while True:
    for name in set(os.listdir("/dev/shm")) - seen:
        if name.startswith("lmi_"):
            try:
                os.open("/dev/shm/" + name, os.O_RDONLY)
            except OSError:
                continue
            seen.add(name)
            print("opened", name, flush=True)
"""
"""Opens each new region of ours as soon as it is there, until it is ended; says which it could."""


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """`echo` and `secretive`, whose operator opens the repository; and the memory that others
    opened meanwhile."""
    folder = tmp_path_factory.mktemp("opened")
    properties = {"option.rolling_batch": "disable", "option.env": ENV}
    secretive = write_properties(folder / "secretive", properties)
    (secretive / "model.py").write_text(LOUD, encoding="utf-8")
    folders = [write_properties(folder / "echo", ECHO), secretive]
    user = ANOTHER_USER if os.getuid() == 0 else {}
    command = [PYTHON, "-I", "-c", RACE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **user) as racer:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
        options = ("--open-api", "model-repository")
        with serve(folders, folder, *options) as server:
            racer.kill()
            yield server, racer.stdout.read()


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


@pytest.fixture(scope="session")
def secret_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secret-place") / "unseen"
    folder.mkdir()
    (folder / "serving.properties").write_text(UNSEEN.format(secret=SECRET), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def crowded(secret_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo`, which runs few requests at once, and `unseen`; both for clients of /infer too."""
    folder = tmp_path_factory.mktemp("crowded")
    few = {"option.max_rolling_batch_size": RUNNING, "job_queue_size": WAITING}
    echo = write_properties(folder / "echo", ECHO | few | {"option.token_seconds": 0.01})
    with serve([echo, secret_folder], folder, "--clients", "infer") as served:
        yield served


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
