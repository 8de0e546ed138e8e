"""Unit tests see nothing of the shell but where the machine's folders are."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.run.shell import WORKERS

# How long an example takes is the machine's: other tests run beside it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WORKERS:
        monkeypatch.delenv(name, raising=False)
    # Nobody is asked for the config.json of a model that is only named.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Restore the levels of loggers, which a program under test sets for its process."""
    loggers = [logging.getLogger(name) for name in ("", "lmi_backend", "uvicorn")]
    levels = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, levels, strict=True):
        # To set one costs a look at all loggers.
        if each.level != level:
            each.setLevel(level)
