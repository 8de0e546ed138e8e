"""Find one file of a Hugging Face Hub model: in the local cache, else from the Hub.

huggingface_hub is not needed here: the workers' interpreter has it, as every engine depends on it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import secure_caches

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SECONDS = 30.0
# What is asked for after the first name is fetched where it is there.
SHORT_ERRORS = """\
import sys
sys.excepthook = lambda kind, error, _: print(f"{kind.__name__}: {error}", file=sys.stderr)
"""
"""How a program begins that runs in the workers' interpreter, so that `cause_of` reads its end."""
_DOWNLOAD = f"""{SHORT_ERRORS}
import contextlib
from huggingface_hub import hf_hub_download
model, revision, name, *more = sys.argv[1:]
print(hf_hub_download(model, name, revision=revision or None))
for name in more:
    with contextlib.suppress(Exception):
        hf_hub_download(model, name, revision=revision or None)
"""
NO_FILE = "has no such file"
"""In the error of a model that is on the Hub, without the file."""
_CAUSES = (
    ("GatedRepoError", "is gated; request access on its page, with the account of HF_TOKEN"),
    ("RevisionNotFoundError", "has no such revision; check option.revision"),
    (
        "RepositoryNotFoundError",
        "is not on the Hub, or is private; check option.model_id, and set HF_TOKEN",
    ),
    ("LocalEntryNotFoundError", "cannot be fetched: the Hub cannot be reached"),
    ("EntryNotFoundError", NO_FILE),
    ("401 Unauthorized", "cannot be fetched: the Hub does not know the token; check HF_TOKEN"),
    (
        "No module named",
        "cannot be looked up: {python} has no huggingface_hub; run "
        "`{python} -m pip install huggingface_hub`",
    ),
)


def hub_file(
    python: str,
    model_id: str,
    revision: str,
    names: Sequence[str],
    environment: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Return the local path of a file of a hub model.

    Args:
        revision: branch, tag or commit; empty for the main branch.
        names: of the file, and of others that are fetched with it where the model has them.
        say: is told before the Hub is contacted.

    Raises:
        ConfigurationError: the id is malformed, the file is missing, or the cache is a stranger's.
    """
    if not HUB_ID.fullmatch(model_id):
        message = f"{model_id}: is neither a folder nor a hub id; accepted: organisation/model"
        raise ConfigurationError(message)
    if revision.startswith("/") or ".." in revision.split("/"):
        raise ConfigurationError(f"{model_id}: {revision} is not a revision of the model")
    secure_caches(environment)
    name = names[0]
    cached = snapshot(model_id, revision, environment) / name
    if os.path.isfile(cached):
        return cached
    if is_offline(environment):
        message = f"{model_id}: {name} is not in the local cache, and HF_HUB_OFFLINE is set"
        raise ConfigurationError(message)
    say(f"requesting from the Hub: {name} of {model_id}, {_SECONDS:.0f} s at most")
    try:
        done = subprocess.run(  # noqa: S603
            (python, "-c", _DOWNLOAD, model_id, revision, *names),
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error if isinstance(error, OSError) else f"in {_SECONDS:.0f} s"
        raise ConfigurationError(f"{model_id}: the Hub did not answer: {why}") from error
    if done.returncode:
        raise ConfigurationError(f"{model_id}: {cause_of(done.stderr, python)}")
    return Path(done.stdout.splitlines()[-1])


def is_offline(environment: Mapping[str, str]) -> bool:
    """Tell whether the Hub may not be contacted, as its own library reads the variable."""
    return environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def cache_of(environment: Mapping[str, str]) -> Path:
    """Return the Hub's cache, as its own library finds it."""
    if named := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expanduser(named))
    caches = environment.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    home = environment.get("HF_HOME") or os.path.join(caches, "huggingface")
    return Path(os.path.expanduser(home)) / "hub"


def snapshot(model_id: str, revision: str, environment: Mapping[str, str]) -> Path:
    """Return the folder of the cache where a revision's files would be."""
    folder = cache_of(environment) / f"models--{model_id.replace('/', '--')}"
    commit = revision
    if not _COMMIT.fullmatch(revision):
        reference = folder / "refs" / (revision or "main")
        commit = reference.read_text("ascii").strip() if os.path.isfile(reference) else "none"
    return folder / "snapshots" / commit


def folder_of(model: str, revision: str, environment: Mapping[str, str]) -> Path | None:
    """Return where a model's files are; None if it has none, or the engine keeps them elsewhere."""
    try:
        here = Path(model)
        return (
            None if not model else here if here.is_dir() else snapshot(model, revision, environment)
        )
    except (OSError, ValueError):
        return None


def cause_of(text: str, python: str) -> str:
    """Return in a sentence what an error of the library means, in some interpreter."""
    for word, cause in _CAUSES:
        if word in text:
            return cause.format(python=python)
    lines = text.strip().splitlines()
    return f"cannot be fetched from the Hub: {lines[0] if lines else 'no reason given'}"
