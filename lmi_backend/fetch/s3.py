"""Download a model from S3, with boto3."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import LARGEST, check_owner, secure_cache
from lmi_backend.machine import pip_command
from lmi_backend.printable import GIB

_CONNECT_SECONDS: Final = 5


def download_folder(url: str, environment: Mapping[str, str]) -> Path:
    """Return where a model of S3 is kept; the name is LMI's, so that its downloads are found."""
    root = environment.get("SERVING_DOWNLOAD_DIR") or environment.get("DJL_CACHE_DIR")
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    name = hashlib.sha256(url.encode()).digest()[:20].hex()
    return (Path(root) if root else Path(cache) / "lmi-backend") / "download" / name


def fetch_s3(url: str, environment: Mapping[str, str], *, say: Callable[[str], None]) -> Path:
    """Return a local folder with everything below an s3:// prefix; download it if need be.

    Raises:
        ConfigurationError: there is nothing, it cannot be reached, boto3 is missing, or somebody
            else has put something in its place.
    """
    folder = download_folder(url, environment)
    try:
        secure_cache(folder.parent, "the folder of models from S3")
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        check_owner(folder.parent)
        with _lock(folder.with_suffix(".lock")):
            if folder.is_dir():
                check_owner(folder)
                say(f"{url}: {folder} has it already")
                return folder
            draft = folder.with_suffix(".partial")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700)
            copy_s3(url, draft, environment, say=say)
            # A model is there whole or not at all.
            draft.rename(folder)
    except OSError as error:
        message = f"{url}: cannot be kept in {folder}: {error.strerror or error}"
        raise ConfigurationError(message) from error
    return folder


def copy_s3(
    url: str,
    folder: Path,
    environment: Mapping[str, str],
    *,
    only: Collection[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Download what is below an s3:// prefix into a folder.

    Args:
        only: names of small files; no others are downloaded then, and none must be there.

    Raises:
        ConfigurationError: there is nothing, it cannot be reached, or boto3 is missing.
    """
    bucket, prefix = _split(url)
    with _client(url, environment) as client:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        entries = [each for page in pages for each in page.get("Contents", ())]
        # Keys that end in / only mark folders.
        sizes = {each["Key"]: each["Size"] for each in entries if not each["Key"].endswith("/")}
        if not sizes:
            raise ConfigurationError(f"{url}: holds nothing; accepted: a prefix of a model's files")
        if only:
            wanted = [prefix + name for name in only]
            sizes = {key: sizes[key] for key in wanted if sizes.get(key, LARGEST) < LARGEST}
        done, total = 0, sum(sizes.values())
        for key, size in sizes.items():
            path = folder / _inside(url, key.removeprefix(prefix))
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, key, str(path))
            done += size
            if size > GIB:
                say(f"{url}: {done / GIB:.1f} of {total / GIB:.1f} GiB")


@contextlib.contextmanager
def _client(url: str, environment: Mapping[str, str]) -> Iterator[Any]:
    """Yield boto3's client; turn its errors into one sentence."""
    try:
        boto3, botocore = (importlib.import_module(name) for name in ("boto3", "botocore"))
    except ImportError as error:
        message = f"{url}: nothing here can read S3; run {pip_command('s3')}"
        raise ConfigurationError(message) from error
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    config = botocore.config.Config(connect_timeout=_CONNECT_SECONDS, retries={"max_attempts": 3})
    theirs = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)
    try:
        # A session of its own: the default one is shared by threads and keeps old credentials.
        yield boto3.Session().client(
            "s3", config=config, region_name=region, endpoint_url=endpoint or None
        )
    except (*theirs, boto3.exceptions.Boto3Error) as error:
        raise ConfigurationError(f"{url}: cannot be fetched: {error}") from error


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


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process download a model while the others wait for it."""
    # Never through a link, which would empty the file it leads to.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
