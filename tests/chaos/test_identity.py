"""A worker dies after files or an adapter have changed that its answers depend on."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.serving.identity import identify
from lmi_backend.serving.lora import LoraManager
from lmi_backend.serving.service import renew_worker
from tests.support.servers.harness import Harness, RecordingSink, started

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def folder_of(path: Path, weights: str) -> str:
    path.mkdir(parents=True)
    (path / CONFIG).write_text("{}")
    (path / WEIGHTS).write_text(weights)
    return str(path)


Change = Callable[[Path, Callable[..., None]], None]


def same(folder: Path, manage: Callable[..., None]) -> None:
    """Write the same bytes again, which changes nothing but times."""
    (folder / "a" / WEIGHTS).write_text("1")


def other_files(folder: Path, manage: Callable[..., None]) -> None:
    (folder / "a" / WEIGHTS).write_text("2")


def other_adapter(folder: Path, manage: Callable[..., None]) -> None:
    manage(requestType="UNREGISTER_ADAPTER", name="a")
    manage(requestType="REGISTER_ADAPTER", name="a", src=folder_of(folder / "b", "2"))


OPTIONS = {
    "engine": "Python",
    "option.rolling_batch": "echo",
    "option.enable_lora": "true",
    "option.token_seconds": "0.02",
}


@contextlib.contextmanager
def serving(folder: Path, model: str = "") -> Iterator[tuple[Harness, Callable[..., None]]]:
    """Give a model of one worker with adapters, and what manages these."""
    with started(OPTIONS, folder) as echo:
        pool: Any = echo.pool
        adapters = LoraManager(pool.adapters, echo.service, (str(folder),), is_enabled=True)
        adapters.on_set = pool.note_adapter
        # The engine reads no model; whoever resumes an answer looks at its files.
        config = replace(echo.plan.config, model=model)
        pool.on_start = partial(identify, adapters=pool.adapters, config=config, environment={})
        assert renew_worker(echo.service, pool, 60, 0, 30).problem == ""

        def manage(**body: object) -> None:
            answer = RecordingSink()
            adapters.handle(body, answer)
            assert answer.wait().error is None

        yield echo, manage


def stream(echo: Harness, adapter: str = "") -> RecordingSink:
    sampling = Sampling(max_tokens=60, ignore_eos=True)
    request = GenerateRequest("x y z", sampling, stream=True, adapter=adapter)
    return echo.submit([request]).wait_first()


@pytest.mark.parametrize(
    ("change", "ends"), [(same, False), (other_files, True), (other_adapter, True)]
)
def test_a_stream_resumes_only_with_the_adapter_that_it_began_with(
    tmp_path: Path, change: Change, ends: bool
) -> None:
    src = folder_of(tmp_path / "a", "1")
    with serving(tmp_path) as (echo, manage):
        manage(requestType="REGISTER_ADAPTER", name="a", src=src)
        adapted, base = stream(echo, "a"), stream(echo)
        change(tmp_path, manage)
        echo.workers[0].kill()
        assert (base.wait().error, len(base.deltas) > 0) == (None, True)
        error = adapted.wait().error
        assert isinstance(error, EngineDeadError) == ends
        assert ("adapter a has changed" in str(error)) == ends


@pytest.mark.parametrize(("weights", "ends"), [("1", False), ("2", True)])
def test_a_worker_that_is_started_anew_with_new_weights_ends_streams_of_the_old_ones(
    tmp_path: Path, weights: str, ends: bool
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_text("1")
    with serving(tmp_path, str(model)) as (echo, _):
        begun = stream(echo)
        (model / "model.safetensors").write_text(weights)
        assert renew_worker(echo.service, echo.pool, 60, 0, 30).problem == ""  # type: ignore[arg-type]
        error = begun.wait().error
        assert isinstance(error, EngineDeadError) == ends
        assert ("its files, its tokenizer or an option" in str(error)) == ends
        assert stream(echo).wait().error is None
