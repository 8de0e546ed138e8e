"""An answer that is kept for its client."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.frontend.kept_answer import KeptAnswer


@pytest.mark.asyncio
async def test_an_answer_that_is_forgotten_has_no_client_any_more() -> None:
    exchange: Any = SimpleNamespace(model="m", key_digest="", path="/p")
    kept = KeptAnswer(SimpleNamespace(), exchange, 9.0)  # type: ignore[arg-type]
    kept.is_kept = True
    left: list[bool] = []
    kept.when_gone = lambda leave: None  # type: ignore[method-assign]
    kept._leave = lambda: left.append(True)
    assert not kept.has_left
    kept.forget()
    assert (kept.has_left, left) == (True, [True])
