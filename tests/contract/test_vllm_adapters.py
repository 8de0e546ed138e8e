"""A LoRA adapter that cannot be read fails its own requests, and no engine.

vLLM reads adapters in the middle of a step, and a step that fails ends its core.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling
from tests.support.run.places import LORA
from tests.support.servers.harness import Harness, RecordingSink

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PROMPT = "The capital of France is"
BASE, ADAPTED = " Paris.", " Lyon."

pytestmark = pytest.mark.parametrize("engine", ["vllm"], indirect=True)


def order(engine: Harness, name: str, folder: Path | str, **more: bool) -> RecordingSink:
    """Load an adapter, or forget it where there is not a folder."""
    return engine.adapt(name, folder, **{"preload": False, **more})


def ask(engine: Harness, adapter: str, tokens: int = 8) -> RecordingSink:
    sampling = Sampling(tokens, temperature=0.0)
    return engine.submit([GenerateRequest(PROMPT, sampling, adapter=adapter)]).wait()


def post(engine: Harness, body: dict[str, object] | bytes) -> RecordingSink:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return engine.submit(HttpRequest("/v1/completions", data)).wait()


def bodies(adapter: str) -> list[bytes]:
    body = {"model": adapter, "prompt": PROMPT, "temperature": 0, "max_tokens": 8}
    read_otherwise = json.dumps(body)[:-1] + ', "user": NaN}'
    return [json.dumps(body | more).encode() for more in ({}, {"stream": True})] + [
        read_otherwise.encode()
    ]


def are_refused(engine: Harness, adapters: dict[str, Path]) -> None:
    """Ask for each adapter in each way; no request but these notices."""
    before = engine.service.snapshot().workers[0].deaths
    with engine.whole_streams():
        for adapter, folder in adapters.items():
            refused = ask(engine, adapter)
            assert isinstance(refused.error, RequestError), (adapter, refused.text)
            assert refused.error.field == "adapter"
            assert str(folder) not in str(refused.error)
            for body in bodies(adapter):
                answer = post(engine, body)
                assert answer.error is None, body
                assert answer.deltas[0].status == 400, (body, answer.deltas)
    assert engine.service.snapshot().workers[0].deaths == before


def cut(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def wrong_bytes(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"\xff" * 100)


def no_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def no_config(folder: Path) -> None:
    (folder / CONFIG).write_text("{")


def high_rank(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"r": 512}))


def other_shapes(folder: Path) -> None:
    """Put the first tensor in for another model's, whose rows are twice as many."""
    data = (folder / WEIGHTS).read_bytes()
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    for tensor in table.values():
        if "shape" in tensor:
            rows, columns = tensor["shape"]
            tensor["shape"] = [columns, rows]
    text = json.dumps(table).encode()
    (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


BREAKS: tuple[Callable[[Path], None], ...] = (
    cut, wrong_bytes, no_weights, no_config, high_rank, other_shapes, gone,
)  # fmt: skip


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LORA, tmp_path / "mine"))


@pytest.fixture
def adapters(tmp_path: Path) -> dict[str, Path]:
    """A copy for each way to break it."""
    names = [spoil.__name__ for spoil in BREAKS]
    return {name: Path(shutil.copytree(LORA, tmp_path / name)) for name in names}


def evict(engine: Harness) -> None:
    """Use as many adapters as the core keeps."""
    for number in range(6):
        order(engine, f"other{number}", LORA)
        assert ask(engine, f"other{number}").text == ADAPTED
    for number in range(6):
        order(engine, f"other{number}", "")


def test_those_that_are_broken_when_they_are_loaded(
    engine: Harness, adapters: dict[str, Path]
) -> None:
    for spoil in BREAKS:
        name, folder = spoil.__name__, adapters[spoil.__name__]
        spoil(folder)
        assert order(engine, name, folder, preload=True).error is not None, name
        assert order(engine, name, folder).error is None, name
    are_refused(engine, adapters)
    for name in adapters:
        assert order(engine, name, "").error is None, name


def test_those_that_are_broken_later_serve_until_the_core_drops_them(
    engine: Harness, adapters: dict[str, Path]
) -> None:
    for spoil in BREAKS:
        name, folder = spoil.__name__, adapters[spoil.__name__]
        assert order(engine, name, folder).error is None, name
        assert ask(engine, name).text == ADAPTED, name
        spoil(folder)
        assert ask(engine, name).text == ADAPTED, name
    evict(engine)
    are_refused(engine, adapters)
    for name, folder in adapters.items():
        shutil.copytree(LORA, folder, dirs_exist_ok=True)
        assert ask(engine, name).text == ADAPTED, name
        assert order(engine, name, "").error is None, name


def test_one_that_is_forgotten_and_removed_while_it_answers(engine: Harness, adapter: Path) -> None:
    assert order(engine, "mine", adapter).error is None
    sampling = Sampling(200, temperature=0.0, ignore_eos=True)
    asked = [GenerateRequest(PROMPT, sampling, stream=True, adapter="mine")]
    undisturbed = engine.submit(asked).wait().text
    stream = engine.submit(asked).wait_first()
    assert order(engine, "mine", "").error is None
    shutil.rmtree(adapter)
    assert isinstance(ask(engine, "mine").error, RequestError)
    assert (stream.wait().error, stream.text) == (None, undisturbed)


def test_new_weights_answer_and_a_stream_keeps_its_own(engine: Harness, adapter: Path) -> None:
    """From the same folder, and from another."""
    order(engine, "mine", adapter)
    assert ask(engine, "mine").text == ADAPTED
    sampling = Sampling(200, temperature=0.0, ignore_eos=True)
    asked = [GenerateRequest(PROMPT, sampling, stream=True, adapter="mine")]
    undisturbed = engine.submit(asked).wait().text
    stream = engine.submit(asked).wait_first()
    zeros(adapter)
    assert order(engine, "mine", adapter, preload=True).error is None
    assert ask(engine, "mine").text == BASE
    assert order(engine, "mine", LORA, preload=True).error is None
    shutil.rmtree(adapter)
    assert ask(engine, "mine").text == ADAPTED
    assert (stream.wait().error, stream.text) == (None, undisturbed)
    order(engine, "mine", "")


def zeros(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    (folder / WEIGHTS).write_bytes(data[:length] + bytes(len(data) - length))


def test_pinned_ones_leave_room_for_another(engine: Harness) -> None:
    slots = engine.plan.config.arguments["max_loras"]
    names = [f"pinned{number}" for number in range(slots)]
    order(engine, "other", LORA)
    assert ask(engine, "other").text == ADAPTED
    errors = [order(engine, name, LORA, preload=True, pin=True).error for name in names]
    assert errors[:-1] == [None] * (slots - 1)
    assert f"option.max_loras={slots}" in str(errors[-1])
    assert ask(engine, "other").text == ADAPTED
    for name in (*names[:-1], "other"):
        assert order(engine, name, "").error is None
