"""Secrets are kept out of what people read."""

import pytest

from lmi_backend.redaction import Redactor, masked

TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqRsTuV"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "whatever", "***"),
        ("AWS_SECRET_ACCESS_KEY", "whatever", "***"),
        ("VLLM_API_KEY", "whatever", "***"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=whatever", "***"),
        ("option.env", f"A=1,HF_TOKEN={TOKEN},B=2", "A=***,HF_TOKEN=***,B=***"),
        ("option.model_id", "https://me:secret@hub/model", "https://***@hub/model"),
        ("option.max_tokens", "12", "12"),
        ("option.tokenizer", "org/name", "org/name"),
    ],
)
def test_a_setting_is_shown_without_its_secrets(name: str, value: str, shown: str) -> None:
    assert masked(name, value) == shown


def test_a_text_loses_what_the_environment_says_is_secret() -> None:
    redact = Redactor({"DB_PASSWORD": "correct horse", "PIN_TOKEN": "short", "NAME": "visible one"})
    text = (
        f"tried correct horse with {TOKEN}, Bearer abcdefgh.ijk, AKIAABCDEFGHIJKLMNOP, visible one"
    )
    assert redact(text) == "tried *** with ***, Bearer ***, ***, visible one"
    assert redact("a short text") == "a short text"
