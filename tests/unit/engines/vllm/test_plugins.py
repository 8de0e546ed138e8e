"""Where vLLM's processes look for our plugins."""

import os
import sys
from importlib.metadata import entry_points

import pytest

from lmi_backend.engines.vllm import starting


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)


def test_they_are_found_by_vllms_words() -> None:
    for name, group, entry in (
        ("each_process", "vllm.general_plugins", "lmi-backend"),
        ("forced_tokens", "vllm.logits_processors", "lmi-backend"),
    ):
        assert entry not in [each.name for each in entry_points(group=group)]
        starting.install_plugin(name)
        assert [each.name for each in entry_points(group=group)].count(entry) == 1


@pytest.mark.parametrize(
    ("listed", "then"),
    [(None, None), ("", ",lmi-backend"), ("mine", "mine,lmi-backend")],
)
def test_a_users_list_of_plugins_has_ours_too(
    monkeypatch: pytest.MonkeyPatch, listed: str | None, then: str | None
) -> None:
    if listed is not None:
        monkeypatch.setenv("VLLM_PLUGINS", listed)
    starting.install_plugin("each_process")
    starting.install_plugin("forced_tokens")
    assert os.environ.get("VLLM_PLUGINS") == then
