"""What the trial says of events with more in them, and of outputs with less."""

from typing import Any, cast

import pytest

from lmi_backend.engines.vllm.inside import fast_paths, names
from lmi_backend.engines.vllm.inside.event_trial import EventTrial
from lmi_backend.engines.vllm.inside.trial import Trial
from lmi_backend.errors import ConfigurationError
from lmi_backend.ipc.engine import fast_path_state


@pytest.mark.parametrize(
    ("options", "changing", "state"),
    [
        ({"enable_force_include_usage": True}, {"usage"}, "chosen"),
        ({"response_role": "x", "enable_event_metrics": True}, {"metrics"}, "chosen"),
        # What no option names is this vLLM's own.
        ({"enable_force_include_usage": True}, {"weight_versions"}, "private"),
        ({}, {"usage"}, "private"),
        ({"enable_force_include_usage": True}, set(), "private"),
    ],
)
def test_an_option_whose_member_changes_with_each_event_leaves_out_the_pattern(
    options: dict[str, Any], changing: set[str], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    EventTrial(None, [1, 2], cast(Any, None), (), options)._leave_out_plain(changing)
    assert fast_path_state(fast_paths.states()["plain_stream"]) == state


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (b'data: {"id":"a","model":"mine","choices":[]}', "private"),
        (b'data: {"id": "a", "model": "mine", "choices": []}', "private"),
        (b'data: {"id":"a","model":"first","choices":[]}', "public"),
    ],
)
def test_an_answer_by_another_name_than_its_bodys_is_said(
    event: bytes, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    EventTrial(None, [1, 2], cast(Any, None), (), (), "mine")._check_name(event)
    assert fast_path_state(fast_paths.states()["asked_name"]) == state


class _Tokenizer:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())


@pytest.mark.parametrize(
    ("text", "ids", "lacking"),
    [("Once", b"", "ids of their tokens"), ("", b"\1\0\0\0", "text")],
)
async def test_outputs_that_lack_what_an_answer_is_made_of_are_refused_by_name(
    text: str, ids: bytes, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each count of tokens would be 0, or each answer to LMI's clients empty."""

    async def deltas(*_: object, **__: object) -> list[tuple[Any, ...]]:
        return [(text, ids, "length", (), None, 1)]

    monkeypatch.setitem(vars(names), "vllm_version", "0.99")
    trial = Trial(None, _Tokenizer(), cast(Any, None), ())
    monkeypatch.setattr(trial, "_deltas", deltas)
    with pytest.raises(ConfigurationError, match=rf"AsyncLLM\.generate have no {lacking}"):
        await trial.run()
