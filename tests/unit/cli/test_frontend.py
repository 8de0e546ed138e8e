import argparse

import pytest

from lmi_backend.cli.frontend import add_front_end_arguments


def _parsed(*words: str) -> tuple[str, int]:
    parser = argparse.ArgumentParser()
    add_front_end_arguments(parser)
    found = parser.parse_args(words)
    return found.host, found.port


def test_an_image_and_a_pipeline_say_where_to_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LMI_BACKEND_HOST", raising=False)
    monkeypatch.delenv("SAGEMAKER_BIND_TO_PORT", raising=False)
    assert _parsed() == ("127.0.0.1", 8080)
    monkeypatch.setenv("LMI_BACKEND_HOST", "0.0.0.0")
    monkeypatch.setenv("SAGEMAKER_BIND_TO_PORT", "8085")
    assert _parsed() == ("0.0.0.0", 8085)
    assert _parsed("--host=::1", "--port=9") == ("::1", 9)


def test_a_port_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAGEMAKER_BIND_TO_PORT", "many")
    with pytest.raises(SystemExit):
        _parsed()
    assert "argument --port: invalid int value: 'many'" in capsys.readouterr().err
