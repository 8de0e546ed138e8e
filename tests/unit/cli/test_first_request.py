import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli.first_request import curl_command, host_in


def given(**changed: Any) -> argparse.Namespace:
    plain = {"host": "127.0.0.1", "port": 8080, "api_keys": None, "tls_certificate": None}
    return argparse.Namespace(**{**plain, **changed})


def words(arguments: argparse.Namespace, *names: str, certified: str = "") -> list[str]:
    return shlex.split(curl_command(arguments, names or ("tiny",), "it's", certified))


def test_one_model_needs_no_name_and_several_do() -> None:
    assert "model" not in json.loads(words(given())[-1])
    assert json.loads(words(given(), "a", "b")[-1])["model"] == "a"
    assert json.loads(words(given())[-1])["inputs"] == "it's"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8080/invocations"),
        ("::", "http://[::1]:8080/invocations"),
        ("10.0.0.7", "http://10.0.0.7:8080/invocations"),
    ],
)
def test_the_host_is_one_that_answers_here(host: str, url: str) -> None:
    assert url in words(given(host=host))


def test_keys_are_sent_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    header = "Authorization: Bearer $LMI_API_KEY"
    assert header in words(given(api_keys=Path("keys")))
    assert header not in words(given())
    monkeypatch.setenv("LMI_API_KEY", "secret")
    assert header in words(given())
    assert "secret" not in words(given())


def test_a_certificate_for_another_name_is_asked_by_that_name() -> None:
    served = given(host="0.0.0.0", tls_certificate=Path("a b/tls.crt"))
    command = words(served, certified="llm.example.com")
    assert command[2:6] == [
        "--resolve",
        "llm.example.com:8080:127.0.0.1",
        "--cacert",
        "a b/tls.crt",
    ]
    assert "https://llm.example.com:8080/invocations" in command
    assert "--resolve" not in words(served, certified="127.0.0.1")
    assert "-k" in words(served)


@pytest.mark.parametrize(
    ("names", "host"),
    [
        ((("DNS", "a.example"), ("IP Address", "127.0.0.1")), "127.0.0.1"),
        ((("DNS", "*.example.com"),), "api.example.com"),
        ((("IP Address", "10.0.0.1"),), "10.0.0.1"),
        ((), ""),
    ],
)
def test_a_host_is_taken_from_the_certificate(names: Any, host: str) -> None:
    assert host_in({"subjectAltName": names}, "127.0.0.1") == host
