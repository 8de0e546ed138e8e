import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch import copy_s3, fetch_s3, s3
from tests.support.doubles.s3_server import Bucket, s3_server

URL = "s3://bucket/models/7b"
FILES = {"config.json": b"{}", "weights/model.safetensors": b"w" * 100_000}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    secrets = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "very-secret"}
    for name, value in {**secrets, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    return {**secrets, "SERVING_DOWNLOAD_DIR": str(tmp_path), "PATH": str(tmp_path / "bin")}


@pytest.fixture
def bucket(environment: dict[str, str]) -> Iterator[Bucket]:
    with s3_server() as served:
        served.objects = {f"models/7b/{name}": data for name, data in FILES.items()}
        served.objects |= {"models/7b-chat/config.json": b"other", "models/7b/weights/": b""}
        environment["AWS_ENDPOINT_URL"] = served.url
        yield served


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def refusal(url: str, environment: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as error:
        fetch_s3(url, environment, say=print)
    assert "very-secret" not in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("url", [URL, f"{URL}/"])
def test_a_model_is_fetched_whole_and_once(
    url: str, bucket: Bucket, environment: dict[str, str], tmp_path: Path
) -> None:
    lines: list[str] = []
    folder = fetch_s3(url, environment, say=lines.append)
    assert files(folder) == FILES
    # LMI's name, so that its downloads are found.
    assert folder.parent == tmp_path / "download"
    assert len(folder.name) == 40
    bucket.requests.clear()
    assert fetch_s3(url, environment, say=lines.append) == folder
    assert bucket.requests == []
    assert lines == [f"{url}: {folder} has it already"]


def test_half_a_model_is_never_taken_for_one(bucket: Bucket, environment: dict[str, str]) -> None:
    bucket.broken = "models/7b/weights/model.safetensors"
    assert refusal(URL, environment).startswith(f"{URL}: cannot be fetched: ")
    assert not s3.download_folder(URL, environment).exists()
    bucket.broken = ""
    assert files(fetch_s3(URL, environment, say=print)) == FILES


def test_some_small_files_can_be_fetched_alone(
    bucket: Bucket, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "LARGEST", 1000)
    wanted = ("config.json", "none.json", "weights/model.safetensors")
    folder = tmp_path / "some"
    folder.mkdir()
    copy_s3(URL, folder, environment, only=wanted)
    assert files(folder) == {"config.json": b"{}"}
    bucket.refusal = "AccessDenied"
    with pytest.raises(ConfigurationError, match="AccessDenied"):
        copy_s3(URL, folder, environment, only=wanted)


def test_a_key_cannot_lead_out_of_the_folder(bucket: Bucket, environment: dict[str, str]) -> None:
    bucket.objects["models/7b/../../evil"] = b"x"
    assert "leads out of the model's folder" in refusal(URL, environment)


def test_what_cannot_be_had_is_one_sentence(
    bucket: Bucket, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "names no bucket" in refusal("s3:///x", environment)
    assert "holds nothing" in refusal("s3://bucket/other", environment)
    for code in ("AccessDenied", "NoSuchBucket"):
        bucket.refusal = code
        assert code in refusal(URL, environment)
    environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
    assert "Could not connect" in refusal(URL, environment)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    assert "Unable to locate credentials" in refusal(URL, environment)


def test_without_boto3_the_user_learns_what_to_install(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert refusal(URL, environment).endswith("run `pip install 'boto3>=1.34'`")
