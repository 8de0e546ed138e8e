"""`lmi-backend deploy`: the files by which others run a model's server."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.cli.arguments import comma_list, matching, number, path_of
from lmi_backend.cli.folders import LmiFolder, add_path, model_at
from lmi_backend.cli.planning import (
    UNREAD,
    add_machine,
    machine_of,
    options_of,
    say_notes,
)
from lmi_backend.deploy.files import TARGETS, prometheus
from lmi_backend.deploy.filling import STORE
from lmi_backend.deploy.served import EXTRAS, Needs, Served
from lmi_backend.deploy.variables import interpreter_of, variables_of
from lmi_backend.errors import ConfigurationError
from lmi_backend.options.model_store import LOAD_MODELS
from lmi_backend.options.table import common as opt
from lmi_backend.plan import plan_model
from lmi_backend.plan.hardware import MASK
from lmi_backend.plan.model_source import S3
from lmi_backend.printable import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan import EnginePlan

_PRIVATE: Final = ("/tmp/", "/var/tmp/")  # noqa: S108  no file is made there
_ONE_NODE: Final = (
    "deploy writes servers of one node. Start from deploy/kubernetes/overlays/multi-node, or plan "
    "for larger ones"
)
_MOST_STEPS: Final = 2
"""Folders up, for a path that stays right when all is copied to another machine."""
_MOST_NAME: Final = 40
_MOST_BYTES: Final = 1 << 20
_SECRETS: Final = {
    "kubernetes": "put it into a Secret and the container's env",
    "helm": "put it into a Secret and the container's env",
    "compose": "name it under environment and set it where docker compose runs",
    "systemd": "put it into the unit's EnvironmentFile",
}
OF_PODS: Final = ("kubernetes", "helm")
_NAME: Final = matching(
    re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?", re.ASCII), "a name of Kubernetes"
)
_OF_KUBERNETES: Final = (
    "replicas", "model_claim", "with_", "namespace", "cache_claim", "service_account"
)  # fmt: skip


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "deploy",
        help="write what Kubernetes, Helm, Compose or systemd need to run a model",
        description="Write the files with which Kubernetes (with Kustomize or Helm), Docker "
        "Compose or systemd run a model. Devices, host memory, /dev/shm and times come from its "
        "plan. Nothing is sent anywhere.",
        examples=(
            "lmi-backend deploy llama --to kubernetes --output fleet --gpus 1 --gpu-memory 80GiB",
            "kubectl apply -k fleet",
            "lmi-backend deploy llama --to helm --output chart --gpus 1 --gpu-memory 80GiB",
            "helm install llama chart",
        ),
        statuses={3: "it was written, but the model cannot be fetched: its size is not known"},
    )
    add_path(parser, "folder with serving.properties")
    add = parser.add_argument
    add("--to", choices=TARGETS, required=True, help="who runs it")
    add("--output", type=path_of, required=True, metavar="FOLDER", help="write the files here")
    add("--force", action="store_true", help="write over files that differ")
    image = matching(re.compile(r"[\w./:@-]{1,400}", re.ASCII), "an image's name")
    add("--image", type=image, help="of the server; default: lmi-backend:cpu, :vllm or :trtllm")
    pods = f"pods (default {Served.replicas})"
    add("--replicas", type=number(int, 1, 1000), default=0, metavar="N", help=pods)
    add(
        "--model-claim",
        type=_NAME,
        default="",
        metavar="NAME",
        help="a PersistentVolumeClaim of Kubernetes that holds the folder, for models whose "
        "weights lie in it; default: a ConfigMap with the folder's files",
    )
    _add_kubernetes(parser)
    add_machine(parser)
    parser.set_defaults(run=_deploy)


def _add_kubernetes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Kubernetes")
    extras = "; ".join(f"{word}: {what}" for word, what in EXTRAS.items())
    group.add_argument(
        "--with",
        dest="with_",
        type=lambda text: comma_list(text, EXTRAS),
        default=[],
        metavar="WORD,…",
        help=f"what else to write. {extras}",
    )
    for name, what in (
        ("namespace", "namespace of the objects"),
        ("cache-claim", "a PersistentVolumeClaim that keeps downloads and compiled kernels"),
        ("service-account", "service account of the pods, for a role that reads S3"),
    ):
        group.add_argument(f"--{name}", type=_NAME, default="", metavar="NAME", help=what)


def _deploy(arguments: argparse.Namespace) -> int:
    model = model_at(arguments)
    if model.given:
        advice = f"`lmi-backend check {arguments.path} --save FOLDER` writes one"
        raise ConfigurationError(f"{arguments.path}: accepted: a folder; {advice}")
    plan, served = _served(model, arguments)
    files = TARGETS[arguments.to](served) | prometheus(has_pods=arguments.to in OF_PODS)
    for path, text in _unwritten(files, arguments.output, is_forced=arguments.force).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"{arguments.output / name}\n" for name in files))
    if not plan.is_unread:
        return 0
    without = "devices, memory and times are not checked against it"
    say(f"{model.name}: written without the model's size: {without}; exit status {UNREAD}")
    return UNREAD


def _served(model: LmiFolder, arguments: argparse.Namespace) -> tuple[EnginePlan, Served]:
    _check(arguments)
    machine = machine_of(arguments)
    options = options_of(model, machine, for_another_machine=arguments.to != "systemd")
    hardware = machine.hardware()
    needs_gpus = options.choice.spec.implementation.takes_memory and arguments.to != "systemd"
    if needs_gpus and not (hardware.devices or machine.for_another_machine):
        accepted = "--gpus N or --gpu NAME of the machine that will run it; --gpus 0 for a CPU"
        raise ConfigurationError(f"--gpus is missing: this machine has none; accepted: {accepted}")
    plan = plan_model(options, os.environ, hardware=hardware, reach="config", say=say)
    if plan.parallel.nodes > 1:
        message = f"{model.name}: its plan spans {plan.parallel.nodes} nodes; {_ONE_NODE}"
        raise ConfigurationError(message)
    say(f"{model.name}: planned for {hardware.title}")
    say_notes(model.name, plan)
    _say_what_to_mount(model, plan, arguments)
    has_folder = os.path.isdir(model.folder)
    texts: Mapping[str, str] = {}
    if has_folder and arguments.to in OF_PODS and not arguments.model_claim:
        texts = _texts(model.folder)
        _warn_of_secrets(plan)
    place = _place(model, options, arguments.to) if has_folder else ""
    remote_model = _remote_model(plan, arguments)
    served = Served(
        name=manifest_name(model.name),
        title=model.name,
        image=arguments.image or _image(options, plan),
        needs=Needs.of(plan, is_downloaded=bool(remote_model)),
        replicas=arguments.replicas or Served.replicas,
        mount=_mount(model.folder, arguments.output),
        place=place,
        variables=_variables(options, plan, arguments, title=model.name, place=place),
        texts=texts,
        extras=frozenset(arguments.with_),
        namespace=arguments.namespace,
        service_account=arguments.service_account,
        given_cache=arguments.cache_claim,
        remote_model=remote_model,
        revision=options[opt.REVISION],
        claim=arguments.model_claim,
    )
    return plan, served


def _check(arguments: argparse.Namespace) -> None:
    given = [name for name in _OF_KUBERNETES if getattr(arguments, name)]
    if given and arguments.to not in OF_PODS:
        option = given[0].strip("_").replace("_", "-")
        raise ConfigurationError(f"--{option}: needs --to {' or '.join(OF_PODS)}")
    if arguments.namespace and arguments.to == "helm":
        raise ConfigurationError("--namespace: needs --to kubernetes; helm install has its own")
    extras = arguments.with_
    if "cache" in extras and arguments.cache_claim:
        raise ConfigurationError("--cache-claim and --with cache; accepted: one of them")
    if "keda" in extras and arguments.to == "kubernetes" and not arguments.namespace:
        say("keda counts pods of this name in every namespace; name one with --namespace")
    if "keda" in extras and "monitor" not in extras:
        say("keda reads a Prometheus that scrapes the pods; --with monitor,keda has it do so")


def _mount(folder: Path, output: Path) -> str:
    """Return a folder from where the files are written, if both are in one folder or the next."""
    path = os.path.relpath(folder.resolve(), output.resolve())
    return path if path.split(os.sep).count("..") <= _MOST_STEPS else str(folder.resolve())


def _say_what_to_mount(model: LmiFolder, plan: EnginePlan, arguments: argparse.Namespace) -> None:
    place, folder = plan.config.model, str(model.folder.resolve())
    if arguments.to == "systemd":
        paths = (folder, place, sys.executable)
        if hidden := next((each for each in paths if each.startswith(_PRIVATE)), ""):
            say(f"{model.name}: move {hidden}: the unit has a /tmp of its own (PrivateTmp=yes)")
        return
    is_mounted = place == folder or place.startswith((f"{folder}/", STORE))
    if os.path.isabs(place) and not is_mounted:
        say(f"{model.name}: mount {place} at the same path in the container; nothing written does")


def _remote_model(plan: EnginePlan, arguments: argparse.Namespace) -> str:
    """Return the hub id or s3:// prefix that the server downloads; empty if there is none."""
    model = plan.config.model
    is_without_role = arguments.to in OF_PODS and not arguments.service_account
    if model.startswith(S3) and is_without_role:
        say(f"{model}: the pods need a role that reads it; name one with --service-account")
    return "" if os.path.isabs(model) else model


def _place(model: LmiFolder, options: LmiOptions, target: str) -> str:
    """Return a model's folder where it will run."""
    if target == "systemd":
        return str(model.folder.resolve())
    # As LMI has it: the properties and the weights are in one folder, which they name.
    is_store = os.path.normpath(options[opt.MODEL_ID] or ".") == STORE
    return STORE if is_store else f"{STORE}/{model.name}"


def _variables(
    options: LmiOptions,
    plan: EnginePlan,
    arguments: argparse.Namespace,
    *,
    title: str,
    place: str,
) -> dict[str, str]:
    assigned, secret, of_server = variables_of(options, place=place, name=title)
    written = ({LOAD_MODELS: f"{title}={STORE}"} if place == STORE else {}) | assigned
    if arguments.to == "systemd":
        written |= interpreter_of(options, plan.launch.python)
        if not machine_of(arguments).for_another_machine and os.environ.get(MASK):
            written |= {MASK: os.environ[MASK]}
    left = sorted(of_server - {*written})
    for name in secret:
        say(f"{title}: {name} may be secret and is not written; {_SECRETS[arguments.to]}")
    if left:
        say(f"{title}: not written, set where the server runs: {', '.join(left)}")
    return written


def manifest_name(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:_MOST_NAME].rstrip("-") or "model"


def _image(options: LmiOptions, plan: EnginePlan) -> str:
    implementation = options.choice.spec.implementation
    target = implementation.image if any(plan.parallel.device_groups) else "cpu"
    if not target:
        what = f"an image with {implementation.title}; our Dockerfile makes none"
        raise ConfigurationError(f"--image is missing; accepted: {what}")
    return f"lmi-backend:{target}"


def _texts(folder: Path) -> dict[str, str]:
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
            raise ConfigurationError(f"{path}: is not text; {advice}") from error
    return texts


def _warn_of_secrets(plan: EnginePlan) -> None:
    if names := sorted({name for name, _ in plan.secrets()}):
        say(
            f"{', '.join(names)}: may be secret, and is written into a ConfigMap, which is none; "
            "put it into the Secret lmi-backend and the pod's environment"
        )


def _unwritten(files: Mapping[str, str], folder: Path, *, is_forced: bool) -> dict[Path, str]:
    wanted = {folder / name: text for name, text in files.items()}
    unwritten = {}
    for path, text in wanted.items():
        there = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        if there not in (None, text) and not is_forced:
            raise ConfigurationError(f"{path}: differs from what would be written; --force")
        if there != text:
            unwritten[path] = text
    return unwritten
