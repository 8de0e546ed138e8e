"""Download a model from S3, with boto3 or the AWS command line."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from lmi_backend.bounded_files import LARGEST
from lmi_backend.errors import ConfigurationError
from lmi_backend.private_folders import check_owner, secure_cache
from lmi_backend.units import GIB, human_bytes

_CONNECT_SECONDS = 5
_PROGRESS_SECONDS = 5.0
_INSTALL = "install boto3 (pip install boto3) or the AWS command line"


def download_folder(url: str, environment: Mapping[str, str]) -> Path:
    """Return where a model of S3 is kept; the name is LMI's, so that its downloads are found."""
    root = environment.get("SERVING_DOWNLOAD_DIR") or environment.get("DJL_CACHE_DIR")
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    name = hashlib.sha256(url.encode()).digest()[:20].hex()
    return (Path(root) if root else Path(cache) / "lmi-backend") / "download" / name


def fetch_s3(url: str, environment: Mapping[str, str], *, say: Callable[[str], None]) -> Path:
    """Return a local folder with everything below an s3:// prefix; download it if need be.

    Raises:
        ConfigurationError: there is nothing, it cannot be reached, nothing can fetch it, or
            somebody else has put something in its place.
    """
    folder = download_folder(url, environment)
    try:
        _make_private(folder.parent)
        with _lock(folder.with_suffix(".lock")):
            if folder.is_dir():
                check_owner(folder)
                say(f"{url}: {folder} has it already")
                return folder
            draft = folder.with_suffix(".partial")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700)
            _download(url, draft, environment, say)
            # A model is there whole or not at all.
            draft.rename(folder)
    except OSError as error:
        message = f"{url}: cannot be kept in {folder}: {error.strerror or error}"
        raise ConfigurationError(message) from error
    return folder


def _make_private(folder: Path) -> None:
    """Make the folder of all downloads, or refuse one that somebody else has made."""
    secure_cache(folder, "the folder of models from S3")
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    check_owner(folder)


def fetch_s3_file(url: str, name: str, environment: Mapping[str, str]) -> bytes | None:
    """Return one small file below a prefix, None if it is not there.

    Raises:
        ConfigurationError: the bucket cannot be reached, or nothing can fetch it.
    """
    client = _client(environment)
    if client is None:
        command = _command(url, environment)
        done = _run((*command, "s3", "cp", f"{url.rstrip('/')}/{name}", "-"), environment)
        return done.stdout if done.returncode == 0 else None
    bucket, prefix = _split(url)
    with _errors(url):
        for key, _ in _objects(client, bucket, prefix):
            if key == prefix + name:
                body = client.get_object(Bucket=bucket, Key=key)["Body"]
                return _bounded(body.read(LARGEST + 1), f"{url}/{name}")
    return None


def _bounded(data: bytes, name: str) -> bytes:
    if len(data) > LARGEST:
        problem = f"is too large; accepted: at most {human_bytes(LARGEST)}"
        raise ConfigurationError(f"{name}: {problem}")
    return data


def _download(
    url: str, folder: Path, environment: Mapping[str, str], say: Callable[[str], None]
) -> None:
    client = _client(environment)
    if client is None:
        done = _run((*_command(url, environment), "s3", "sync", url, str(folder)), environment)
        if done.returncode:
            raise ConfigurationError(f"{url}: {_last_line(done.stderr)}")
        if not any(folder.iterdir()):
            raise ConfigurationError(_nothing(url))
        return
    bucket, prefix = _split(url)
    with _errors(url):
        objects = list(_objects(client, bucket, prefix))
        if not objects:
            raise ConfigurationError(_nothing(url))
        progress = _Progress(url, sum(size for _, size in objects), say)
        for key, _ in objects:
            path = folder / _inside(url, key.removeprefix(prefix))
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, key, str(path), Callback=progress.add)


class _Progress:
    """Says every few seconds how much is here."""

    def __init__(self, url: str, total: int, say: Callable[[str], None]) -> None:
        self._url, self._total, self._say = url, total, say
        self._done = 0
        self._last_report = time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._last_report > _PROGRESS_SECONDS:
            self._last_report = time.monotonic()
            self._say(f"{self._url}: {self._done / GIB:.1f} of {self._total / GIB:.1f} GiB")


def _client(environment: Mapping[str, str]) -> Any:
    """Return boto3's client, None without boto3."""
    try:
        boto3 = importlib.import_module("boto3")
        config = importlib.import_module("botocore.config").Config(
            connect_timeout=_CONNECT_SECONDS, retries={"max_attempts": 3}
        )
    except ImportError:
        return None
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    # A session of its own: the default one is shared by threads and keeps old credentials.
    return boto3.Session().client(
        "s3", config=config, region_name=region, endpoint_url=endpoint or None
    )


def _objects(client: Any, bucket: str, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield key and size of each object; keys that end in / only mark folders."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    for page in pages:
        for entry in page.get("Contents", ()):
            if not entry["Key"].endswith("/"):
                yield entry["Key"], entry["Size"]


@contextlib.contextmanager
def _errors(url: str) -> Iterator[None]:
    """Turn boto3's errors into one sentence."""
    exceptions: Any = importlib.import_module("botocore.exceptions")
    try:
        yield
    except exceptions.NoCredentialsError as error:
        message = f"{url}: there are no AWS credentials; set AWS_ACCESS_KEY_ID or a role"
        raise ConfigurationError(message) from error
    except (exceptions.BotoCoreError, exceptions.ClientError) as error:
        raise ConfigurationError(f"{url}: cannot be fetched: {error}") from error
    except importlib.import_module("boto3.exceptions").Boto3Error as error:
        raise ConfigurationError(f"{url}: cannot be fetched: {error}") from error


def _command(url: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    tool = shutil.which("aws", path=environment.get("PATH"))
    if tool is None:
        raise ConfigurationError(f"{url}: nothing here can read S3; {_INSTALL}")
    return (tool,)


def _run(
    command: tuple[str, ...], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, env=dict(environment), check=False)  # noqa: S603


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "the AWS command line failed and printed nothing"


def _split(url: str) -> tuple[str, str]:
    """Return bucket and prefix; the prefix has a final / so that `m/7b` is not `m/7b-chat` too."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise ConfigurationError(f"{url}: names no bucket; accepted: s3://bucket/prefix")
    return bucket, f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""


def _inside(url: str, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ConfigurationError(f"{url}: holds {name!r}, which leads out of the model's folder")
    return path


def _nothing(url: str) -> str:
    return f"{url}: holds nothing; accepted: a prefix with the model's files"


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process download a model while the others wait for it."""
    # Never through a link, which would empty the file it leads to.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
