import pytest

from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.past_releases import past_signature
from lmi_backend.options.signature import NO_FLAG, recorded_signature
from lmi_backend.options.versions import is_later


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("0.26.0", "calculate_kv_scales", "kda_decode_backend"),
        ("0.26.7", "calculate_kv_scales", "kda_decode_backend"),
        ("0.11.0", "swap_space", "performance_mode"),
    ],
)
def test_a_past_release_has_what_it_had(version: str, has: str, lacks: str) -> None:
    past, now = past_signature("vllm", version), recorded_signature("vllm")
    assert past
    assert now
    assert has in past.arguments
    assert lacks not in past.arguments
    assert lacks in now.arguments
    assert is_later(now.version, past.version)


@pytest.mark.parametrize("version", ["0.10.2", "", "dev"])
def test_what_is_not_recorded_is_not_known(version: str) -> None:
    record = recorded_signature("vllm")
    assert record
    assert past_signature("vllm", version) is None
    assert past_signature("vllm", record.version) is None
    assert past_signature("trtllm", "1.0.0") is None


def test_every_release_between_is_recorded_with_its_server() -> None:
    record = recorded_signature("vllm")
    assert record
    ends = (implementations()["vllm"].oldest[0], record.version)
    first, last = (int(text.split(".")[1]) for text in ends)
    for minor in range(first, last):
        past = past_signature("vllm", f"0.{minor}.0")
        assert past, minor
        assert past.arguments["max_model_len"].flag != NO_FLAG
        assert {"lora_modules", "tool_parser_plugin", "response_role"} <= set(past.server)
        assert {"host", "port", "ssl_keyfile"} <= set(past.listener)
        assert "hermes" in past.words["tool_call_parser"]
