import json
import re
from pathlib import Path

import pytest

from lmi_backend.endpoint.address import endpoint_folder
from lmi_backend.endpoint.loading import Loading, LoadingFile, read_loading
from lmi_backend.fetch.weights import Download, duration
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.printable import GIB, MIB


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    return tmp_path


def test_others_read_how_far_a_download_is_until_the_model_is_there(base: Path) -> None:
    file = LoadingFile("tiny")
    try:
        assert read_loading(base)["tiny"].text == "loading the engine"
        file.note(Download(62 * GIB, 100 * GIB, 210 * MIB))
        progress = read_loading(base)["tiny"]
        assert progress.text == "downloading: 62 %, 62.0 GiB of 100.0 GiB, 210.0 MiB/s, about 3 min"
        assert (progress.brief, progress.retry_seconds) == ("62 %, about 3 min", 185)
        file.note(None)
        line = "Loading safetensors checkpoint shards:  62% Completed | 5/8 [00:03<00:02, 1.6it/s]"
        file.hear(f"(EngineCore pid=7) {line}")
        progress = read_loading(base)["tiny"].brief
        assert re.fullmatch(r"62 % of the weights are loaded, \d+ s so far", progress)
        assert read_loading(base)["tiny"].text == "loading: 62 % of the weights"
        file.hear(line.replace(" 62%", "100%"))
        assert re.fullmatch(r"\d+ s so far", read_loading(base)["tiny"].brief)
        file.say("s3://bucket/tiny: 3 of 9 GiB")
        assert read_loading(base)["tiny"].text == "s3://bucket/tiny: 3 of 9 GiB"
    finally:
        file.close()
    assert not read_loading(base)
    assert not list(endpoint_folder(base).iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"model": "a"}',
        json.dumps({"model": "a", "text": "b", "began": 0, "pid": 0}),
        "{" * 99,
    ],
)
def test_a_file_of_a_dead_process_or_of_none_is_left_out(base: Path, text: str) -> None:
    folder = endpoint_folder(base)
    folder.mkdir()
    (folder / "1-a.loading").write_text(text)
    assert read_loading(base) == {}


def test_without_a_rate_no_end_is_told() -> None:
    assert str(Download(0, 2 * GIB, 0)) == "downloading: 0 %, 0 B of 2.0 GiB"
    assert Loading("a", "b", done=1, total=4).brief == "25 %"
    assert Loading("a", "loading the engine").brief == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(40.2, "40 s"), (180, "3 min"), (4800, "1 h 20 min")]
)
def test_times_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
