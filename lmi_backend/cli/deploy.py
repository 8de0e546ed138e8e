"""`lmi-backend deploy`: the files by which others run a model's server."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.cli.folders import Model, model_folder
from lmi_backend.cli.planning import add_hardware, hardware_of, options_of
from lmi_backend.deploy.files import TARGETS, Served
from lmi_backend.deploy.needs import Needs
from lmi_backend.errors import ConfigurationError
from lmi_backend.plan import plan_model
from lmi_backend.plan.refusals import refuse_unserved
from lmi_backend.printable import printable, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan import EnginePlan

_MOST_REPLICAS: Final = 1000
_MOST_NAME: Final = 40
_MOST_BYTES: Final = 1 << 20
"""Of a ConfigMap."""
_CLAIM: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_IMAGE: Final = re.compile(r"[\w./:@-]{1,400}", re.ASCII)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "deploy",
        help="write what Kubernetes, Compose or systemd need to run a model",
        description="Write the files by which Kubernetes (with Kustomize), Docker Compose or "
        "systemd run the server of a model: devices, host memory, /dev/shm and times are those of "
        "its plan. Nothing is sent anywhere.",
        epilog="lmi-backend deploy llama --to kubernetes --output fleet --gpus 1 --gpu-memory "
        "80GiB; kubectl apply -k fleet",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="folder with serving.properties")
    parser.add_argument("--to", choices=TARGETS, required=True, help="who runs it")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FOLDER", help="write the files here"
    )
    parser.add_argument("--force", action="store_true", help="write over files that differ")
    parser.add_argument(
        "--image", help="image of the server; default: lmi-backend:cpu, :vllm or :trtllm"
    )
    parser.add_argument(
        "--replicas", type=int, default=2, metavar="N", help="pods (default %(default)s)"
    )
    parser.add_argument(
        "--model-claim",
        default="",
        metavar="NAME",
        help="a PersistentVolumeClaim of Kubernetes that holds the folder, for models whose "
        "weights lie in it; default: a ConfigMap with the folder's files",
    )
    add_hardware(parser)
    parser.set_defaults(run=_deploy)


def _deploy(arguments: argparse.Namespace) -> int:
    folder = model_folder(arguments.path)
    model = Model(folder.resolve().name, folder)
    files = TARGETS[arguments.to](_served(model, arguments))
    for path, text in _unwritten(files, arguments.output, is_forced=arguments.force).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"{arguments.output / name}\n" for name in files))
    return 0


def _served(model: Model, arguments: argparse.Namespace) -> Served:
    """Return what the arguments ask for.

    Raises:
        ConfigurationError: the model cannot be run, or not in this way.
    """
    options = options_of(model)
    plan = plan_model(options, os.environ, hardware=hardware_of(arguments), reach="config", say=say)
    refuse_unserved(plan)
    if plan.parallel.nodes > 1:
        raise ConfigurationError(
            f"{model.name}: its plan spans {plan.parallel.nodes} nodes; deploy writes servers of "
            "one node. Start from deploy/kubernetes/overlays/multi-node, or plan for larger ones"
        )
    for note in plan.notes:
        say(f"{model.name}: {note}")
    texts: Mapping[str, str] = {}
    if arguments.to == "kubernetes" and not arguments.model_claim:
        texts = _texts(model.folder)
        _warn_of_secrets(plan)
    return Served(
        name=_name(model.name),
        image=_checked(
            "--image", arguments.image or _image(options, plan), _IMAGE, "an image's name"
        ),
        needs=Needs.of(plan),
        replicas=_replicas(arguments.replicas),
        folder=model.folder.resolve(),
        texts=texts,
        claim=_checked("--model-claim", arguments.model_claim, _CLAIM, "the name of a claim"),
    )


def _name(name: str) -> str:
    """Return a model's name as Kubernetes takes it: small letters, digits and dashes."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:_MOST_NAME].rstrip("-") or "model"


def _image(options: LmiOptions, plan: EnginePlan) -> str:
    implementation = options.choice.spec.implementation
    target = implementation.image if any(plan.parallel.device_groups) else "cpu"
    if not target:
        what = f"an image with {implementation.title}; our Dockerfile makes none"
        raise ConfigurationError(f"--image is missing; accepted: {what}")
    return f"lmi-backend:{target}"


def _replicas(count: int) -> int:
    if not 1 <= count <= _MOST_REPLICAS:
        message = f"--replicas {count}; accepted: a whole number, 1 to {_MOST_REPLICAS}"
        raise ConfigurationError(message)
    return count


def _checked(option: str, value: str, form: re.Pattern[str], what: str) -> str:
    if value and not form.fullmatch(value):
        raise ConfigurationError(f"{option} {printable(value)}; accepted: {what}")
    return value


def _texts(folder: Path) -> dict[str, str]:
    """Return the files of a folder, for a ConfigMap.

    Raises:
        ConfigurationError: they are not what a ConfigMap takes.
    """
    advice = "copy the folder to a volume and name its claim with --model-claim"
    texts, left = {}, _MOST_BYTES
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            raise ConfigurationError(f"{path}: a ConfigMap takes no folders; {advice}")
        left -= path.stat().st_size
        if left < 0:
            raise ConfigurationError(f"{path}: a ConfigMap takes 1 MiB at most; {advice}")
        try:
            texts[path.name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path}: is no text; {advice}") from error
    return texts


def _warn_of_secrets(plan: EnginePlan) -> None:
    if names := sorted({name for name, _ in plan.secrets()}):
        say(
            f"{', '.join(names)}: may be secret, and is written into a ConfigMap, which is none; "
            "put it into the Secret lmi-backend and the pod's environment"
        )


def _unwritten(files: Mapping[str, str], folder: Path, *, is_forced: bool) -> dict[Path, str]:
    """Return the files that are not there yet as they are to be.

    Raises:
        ConfigurationError: somebody has changed one of them.
    """
    wanted = {folder / name: text for name, text in files.items()}
    unwritten = {}
    for path, text in wanted.items():
        there = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        if there not in (None, text) and not is_forced:
            raise ConfigurationError(f"{path}: differs from what would be written; --force")
        if there != text:
            unwritten[path] = text
    return unwritten
