"""A worker dies after files or an adapter have changed that its answers depend on."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import Property
from lmi_backend.plan import plan_model
from lmi_backend.pool.pool import Pool
from lmi_backend.serving.identity import identify
from lmi_backend.serving.limits import Limits
from lmi_backend.serving.lora import LoraManager
from lmi_backend.serving.service import Service, renew_worker
from tests.support.servers.harness import RecordingSink

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


class Echo:
    """A model of one worker with adapters, served in this process."""

    def __init__(self, folder: Path, model: str = "") -> None:
        options = {
            "engine": "Python",
            "option.rolling_batch": "echo",
            "option.enable_lora": "true",
            "option.token_seconds": "0.02",
        }
        lines = [Property(key, value, 0) for key, value in options.items()]
        plan = plan_model(resolve_options(lines, {}, folder=folder), {})
        # The engine reads no model; whoever resumes an answer looks at its files.
        plan = replace(plan, config=replace(plan.config, model=model))
        self.pool = pool = Pool(plan, "model", lambda _worker, _line: None)
        self._adapters = LoraManager(pool.adapters, (str(folder),), is_enabled=True)
        self._adapters.on_set = pool.note_adapter
        pool.on_start = partial(
            identify, adapters=pool.adapters, config=plan.config, environment={}
        )
        self.service = Service(pool, Limits.of(plan))

    def __enter__(self) -> "Echo":
        self.service.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.service.close()

    def manage(self, **body: object) -> None:
        answer = RecordingSink()
        self._adapters.handle(body, self.service, answer)
        assert answer.wait().error is None

    def stream(self, adapter: str = "") -> RecordingSink:
        sink = RecordingSink()
        sampling = Sampling(max_tokens=60, ignore_eos=True)
        work = GenerateRequest("x y z", sampling, stream=True, adapter=adapter)
        self.service.submit((work,), sink)
        sink.wait_first()
        return sink


@pytest.mark.parametrize(
    ("change", "ends"), [(same, False), (other_files, True), (other_adapter, True)]
)
def test_a_stream_resumes_only_with_the_adapter_that_it_began_with(
    tmp_path: Path, change: Change, ends: bool
) -> None:
    src = folder_of(tmp_path / "a", "1")
    with Echo(tmp_path) as echo:
        echo.manage(requestType="REGISTER_ADAPTER", name="a", src=src)
        stream, base = echo.stream("a"), echo.stream()
        change(tmp_path, echo.manage)
        worker = echo.pool.slots[0].worker
        assert worker is not None
        worker.kill()
        assert (base.wait().error, len(base.deltas) > 0) == (None, True)
        error = stream.wait().error
        assert isinstance(error, EngineDeadError) == ends
        assert ("adapter a has changed" in str(error)) == ends


@pytest.mark.parametrize(("weights", "ends"), [("1", False), ("2", True)])
def test_a_worker_that_is_started_anew_with_new_weights_ends_streams_of_the_old_ones(
    tmp_path: Path, weights: str, ends: bool
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_text("1")
    with Echo(tmp_path, str(model)) as echo:
        stream = echo.stream()
        (model / "model.safetensors").write_text(weights)
        renewal = renew_worker(echo.service, echo.pool, 60, 0, 30)
        assert renewal.problem == ""
        error = stream.wait().error
        assert isinstance(error, EngineDeadError) == ends
        assert ("its files, its tokenizer or an option" in str(error)) == ends
        assert echo.stream().wait().error is None
