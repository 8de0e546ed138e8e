import argparse
import socket
from pathlib import Path

import pytest

from lmi_backend.cli.frontend import (
    add_front_end_arguments,
    exposure,
    settings_of,
    triton_exposure,
)
from lmi_backend.cli.main import parser
from lmi_backend.front_end_settings import decode, encode, options
from tests.unit.cli.conftest import Command


def _parsed(*words: str) -> tuple[str, int]:
    parser = argparse.ArgumentParser()
    add_front_end_arguments(parser)
    found = parser.parse_args(words)
    return found.host, found.port


def test_an_image_and_a_pipeline_say_where_to_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMI_BACKEND_HOST", "")
    monkeypatch.setenv("SAGEMAKER_BIND_TO_PORT", "")
    assert _parsed() == ("127.0.0.1", 8080)
    monkeypatch.setenv("LMI_BACKEND_HOST", "0.0.0.0")
    monkeypatch.setenv("SAGEMAKER_BIND_TO_PORT", "8085")
    assert _parsed() == ("0.0.0.0", 8085)
    assert _parsed("--host=::1", "--port=9") == ("::1", 9)
    assert _parsed("--port=0")[1] > 0


def test_a_port_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("SAGEMAKER_BIND_TO_PORT", "many")
    errors = command("frontend", status=2).err
    assert "argument --port: many; accepted: a number, 0 to 65535" in errors


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--port", "99999"),
        ("--frontend-processes", "0"),
        ("--max-body", "0"),
        ("--allowed-origins", "chat.example"),
        ("--triton-url", "localhost"),
        ("--metrics-url", "http://"),
        ("--triton-url", ""),
        ("--run-folder", ""),
        ("--api-keys", ""),
    ],
)
def test_a_value_that_cannot_work_is_refused(option: str, value: str, command: Command) -> None:
    errors = command("frontend", option, value, status=2).err
    assert f"argument {option}: {value}; accepted: " in errors


@pytest.mark.parametrize("own", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST", "[::1]"])
def test_a_front_end_passes_nothing_to_itself(own: str, host: str, command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://{host}:{port}/"
    words = (f"--host={own}", f"--port={port}", f"--triton-url={url}")
    errors = command("frontend", *words, status=2).err
    assert f"--triton-url {url}: is this front end's" in errors


@pytest.mark.parametrize("option", ["--running", "--requests-per-minute", "--tokens-per-minute"])
def test_a_key_gets_no_limit_that_the_file_does_not_take(option: str, command: Command) -> None:
    errors = command("api-key", "alice", option, "0", status=2).err
    assert f"argument {option}: 0; accepted: a number, 1 to " in errors


def test_a_process_is_started_with_all_that_options_set(tmp_path: Path) -> None:
    """What an option sets comes through the variable; a field without one is set by `serve`."""
    values = {
        "str": "http://x:9",
        "int": "7",
        "float": "9",
        "Path | None": "a/file",
        "tuple[str, ...]": "https://b,*",
    }
    words = []
    for each, option in options():
        words.append(option.flag)
        words += [values[str(each.type)]] if each.type != "bool" else []
    parser = argparse.ArgumentParser()
    add_front_end_arguments(parser, is_alone=True)
    more = {"base": tmp_path, "control_headers": {"key": "k"}, "awaited": {"a model": ("lmi",)}}
    settings = settings_of(parser.parse_args(words), **more)
    assert decode(encode(settings)) == settings
    for each, option in options():
        assert getattr(settings, each.name) != each.default, option.flag
    assert settings.tls_key == Path("a/file").absolute(), "serve may run in another folder"
    assert "control_headers" not in repr(settings), "a key is not to be logged"


@pytest.mark.parametrize(
    ("words", "key", "warning"),
    [
        ([], "", ""),
        (["--host", "0.0.0.0"], "", "requires no key"),
        (["--host", "0.0.0.0"], "k", "unencrypted, unless what is before this port speaks TLS"),
        (["--host", "0.0.0.0", "--tls-certificate", "a", "--tls-key", "b"], "k", ""),
    ],
)
def test_who_listens_to_all_is_told_what_lacks(
    words: list[str], key: str, warning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMI_API_KEY", key)
    found = exposure(parser().parse_args(["frontend", *words]))
    assert warning in found
    assert bool(found) == bool(warning)


@pytest.mark.parametrize(
    ("words", "key", "warning"),
    [
        ([], "k", ""),
        (["--triton-host", "::1"], "k", ""),
        (["--triton-host", "0.0.0.0"], "k", "goes round --api-keys"),
        (["--triton-host", "10.1.1.1", "--api-keys", "keys"], "", "goes round --api-keys"),
        (["--triton-host", "10.1.1.1"], "", "may use the models"),
        (["--triton-host", "10.1.1.1", "--no-frontend"], "k", "may use the models"),
    ],
)
def test_it_is_told_that_tritons_ports_need_no_key(
    words: list[str], key: str, warning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMI_API_KEY", key)
    found = triton_exposure(parser().parse_args(["serve", *words]))
    assert found.endswith(warning)
    assert bool(found) == bool(warning)
