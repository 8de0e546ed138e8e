"""A model runner that cannot apply the plugin is told from one that can."""

from types import SimpleNamespace

import pytest

from lmi_backend.engines.vllm import names, resume


@pytest.mark.parametrize("is_second", [True, False])
@pytest.mark.parametrize("known", [object, None])
def test_the_second_runner_needs_a_class_of_its_own(
    is_second: bool, known: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(names), "LogitsProcessor", known)
    engine = SimpleNamespace(vllm_config=SimpleNamespace(use_v2_model_runner=is_second))
    if is_second and known is None:
        with pytest.raises(LookupError, match="second model runner has no LogitsProcessor"):
            resume.check_runner(engine)
    else:
        resume.check_runner(engine)
