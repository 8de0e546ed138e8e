"""Make the folder of another user's server before he does: in /tmp anybody may, of any name."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lmi_backend.endpoint.address import endpoint_address
from lmi_backend.endpoint.control import find_endpoints
from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch import fetch_s3, hub_file
from lmi_backend.fetch.s3 import download_folder
from lmi_backend.files import check_owner, kernel_cache, private_folder, secure_cache, secure_caches
from lmi_backend.options import load_options
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from lmi_backend.pool.launch import launch

OTHER_USER = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


@pytest.fixture
def everybodys(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder like /tmp, and the one for temporary files."""
    # Not in tmp_path: each pytest that starts closes its folders to other users, and TMPDIR may be
    # closed to them.
    folder = Path(tempfile.mkdtemp(prefix="lmi-test-", dir="/tmp"))
    folder.chmod(0o711)
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.delenv("LMI_BACKEND_RUN_DIR", raising=False)
    yield shared
    shutil.rmtree(folder)


def as_other_user(*words: str | Path) -> None:
    subprocess.run(words, check=True, user=OTHER_USER, group=OTHER_USER, extra_groups=[])


def by_mkdir(path: Path) -> None:
    as_other_user("mkdir", "-p", "-m", "0755", path)


def by_link(path: Path) -> None:
    aim = path.parent / "aim"
    as_other_user("mkdir", aim)
    as_other_user("ln", "-s", aim, path)


def by_opening(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


ATTACKS = [
    pytest.param(by_mkdir, id="folder", marks=as_root),
    pytest.param(by_link, id="link", marks=as_root),
    pytest.param(by_opening, id="open"),
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_folder_of_sockets(attack: Callable[[Path], None], everybodys: Path) -> None:
    folder = everybodys / f"lmi-endpoints-{os.getuid()}"
    attack(folder)
    for use in (lambda: endpoint_address("m"), lambda: find_endpoints(1, everybodys)):
        with pytest.raises(ConfigurationError, match=rf"{folder}: .*; accepted: a folder of this"):
            use()


@as_root
def test_drain_believes_no_socket_of_a_stranger(everybodys: Path) -> None:
    """One that answers "drained" would let a server be stopped under its requests."""
    folder = everybodys / f"lmi-endpoints-{os.getuid()}"
    by_mkdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "4711-x.sock"))
        with pytest.raises(ConfigurationError, match=f"belongs to user {OTHER_USER}"):
            find_endpoints(4711, everybodys)


def _start(folder: Path) -> None:
    """Start a worker whose interpreter leaves a mark; it has no engine to start."""
    (folder / "serving.properties").write_text("option.rolling_batch=echo\n", encoding="utf-8")
    python = folder / "python"
    python.write_text(f"#!/bin/sh\ntouch {folder}/started\nexit 3\n", encoding="utf-8")
    python.chmod(0o755)
    options = load_options(folder, {"PYTHON_EXECUTABLE": str(python)})
    plan = make_plan(options, {"PATH": ""}, Hardware(), None)
    launch(plan, 0, name="m/0", folder=folder, on_line=lambda line: None)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("variable", ["", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"])
def test_no_worker_starts_on_a_cache_of_a_stranger(
    variable: str,
    attack: Callable[[Path], None],
    everybodys: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    cache = everybodys / "cache" if variable else kernel_cache()
    if variable:
        monkeypatch.setenv(variable, str(cache / "deeper"))
    attack(cache)
    own = tmp_path / "own"
    own.mkdir()
    with pytest.raises(ConfigurationError, match=rf"{cache}: .*; accepted: a folder of this"):
        _start(own)
    assert not (own / "started").exists()


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_rank_of_another_machine_starts_on_one_either(
    attack: Callable[[Path], None], everybodys: Path
) -> None:
    attack(everybodys / "cache")
    done = subprocess.run(
        [sys.executable, "-m", "lmi_backend.worker.main", "--connect", "127.0.0.1:9"],
        env={**os.environ, "HF_HOME": str(everybodys / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"HF_HOME: {everybodys / 'cache'}: ")


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_no_model_of_a_stranger_is_taken_for_one_from_s3(
    depth: int, attack: Callable[[Path], None], everybodys: Path
) -> None:
    url, environment = "s3://bucket/model", {"SERVING_DOWNLOAD_DIR": str(everybodys / "store")}
    model = download_folder(url, environment)
    way = [everybodys / "store", model.parent, model]
    assert way[1].parent == way[0]
    for folder in way[:depth]:
        folder.mkdir()
        folder.chmod(0o1777)
    attack(way[depth])
    with pytest.raises(ConfigurationError, match="accepted: a folder of this user"):
        fetch_s3(url, environment, say=print)


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_file_of_a_stranger_is_taken_for_one_of_the_hub(
    attack: Callable[[Path], None], everybodys: Path
) -> None:
    cache = everybodys / "hf"
    attack(cache)
    with pytest.raises(ConfigurationError, match=r"HF_HOME: .*accepted: a folder of this user"):
        hub_file(sys.executable, "org/m", "", ["config.json"], {"HF_HOME": str(cache)})


def test_a_lock_is_not_opened_through_a_link(everybodys: Path) -> None:
    url, environment = "s3://bucket/model", {"SERVING_DOWNLOAD_DIR": str(everybodys / "store")}
    folder = download_folder(url, environment)
    folder.parent.mkdir(parents=True)
    precious = everybodys / "precious"
    precious.write_text("kept")
    folder.with_suffix(".lock").symlink_to(precious)
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        fetch_s3(url, environment, say=print)
    assert precious.read_text() == "kept"


def test_what_is_missing_is_made_for_this_user_alone(everybodys: Path) -> None:
    before = os.umask(0)
    try:
        secure_cache(everybodys / "a" / "b")
        private_folder(everybodys / "c")
        secure_caches({"HF_HOME": str(everybodys), "NEURON_COMPILE_CACHE_URL": "s3://b/c"})
    finally:
        os.umask(before)
    made = sorted(path.name for path in everybodys.iterdir())
    assert made == ["a", "c", "hub", "modules", "xet"]
    assert {mode(everybodys / name) for name in made} == {0o700}
    # Where only this user writes, the engine makes its folders itself.
    assert not (everybodys / "a" / "b").exists()


def test_a_folder_that_others_could_only_read_is_closed_to_them(everybodys: Path) -> None:
    folder = everybodys / f"lmi-endpoints-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    assert endpoint_address("m").parent == folder
    assert mode(folder) == 0o700


@as_root
def test_a_link_of_a_stranger_deep_on_the_way_is_found(everybodys: Path) -> None:
    """The user's own link leads into a folder where anybody may write."""
    by_mkdir(everybodys / "theirs")
    link = everybodys.parent / "mine"
    link.symlink_to(everybodys / "theirs")
    with pytest.raises(ConfigurationError, match=f"belongs to user {OTHER_USER}"):
        secure_cache(link / "cache")


def test_folders_of_root_and_links_of_ones_own_are_fine(everybodys: Path) -> None:
    (everybodys / "real").mkdir()
    (everybodys / "link").symlink_to(everybodys / "real")
    secure_cache(everybodys / "link" / "cache")
    check_owner(Path("/usr"))
    with pytest.raises(ConfigurationError, match="is a link"):
        check_owner(everybodys / "link")


def test_two_who_make_it_at_once_both_get_it(everybodys: Path) -> None:
    folder, barrier, failures = everybodys / "cache", threading.Barrier(8), []

    def use() -> None:
        barrier.wait()
        try:
            secure_cache(folder)
            private_folder(folder)
        except ConfigurationError as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert mode(folder) == 0o700
