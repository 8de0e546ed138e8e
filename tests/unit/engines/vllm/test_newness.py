import logging

import pytest

from lmi_backend.engines.vllm.fast_paths import say_if_newer
from lmi_backend.options.releases import newest_run


def test_a_newer_release_is_logged_with_what_holds_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    say_if_newer(newest_run("vllm"), {"a": ""})
    assert caplog.messages == []
    say_if_newer("9.1.0+cpu", {"a": "", "b": "expected x; y", "c": ""})
    assert caplog.messages == [
        f"vLLM 9.1.0 is newer than {newest_run('vllm')}, the newest that was run: "
        "2 of 3 fast paths hold"
    ]
