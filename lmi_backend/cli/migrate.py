"""`lmi-backend migrate`: what moves an endpoint, in one step."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.cli import convert, deploy
from lmi_backend.cli.arguments import Parser, path_of
from lmi_backend.cli.check import REFUSED, Examined, examine, row_of
from lmi_backend.cli.folders import LmiFolder, find_models
from lmi_backend.cli.planning import add_machine, machine_of
from lmi_backend.deploy.files import TARGETS
from lmi_backend.errors import ConfigurationError
from lmi_backend.front_end_settings import PORT
from lmi_backend.migrate.page import page_of
from lmi_backend.migrate.sources import PresentServer, read_sources, why_left
from lmi_backend.options.model_store import MODEL_FILES, MODEL_ID
from lmi_backend.options.sources import ORIGIN
from lmi_backend.options.spec import Status, WrittenSetting
from lmi_backend.options.table import common
from lmi_backend.printable import say
from lmi_backend.repository.files import left_to_the_server

if TYPE_CHECKING:
    from types import ModuleType

    from lmi_backend.plan.hardware import Hardware

_PAGE: Final = "MIGRATION.md"
_RECORDED: Final = "recorded"
_DEPLOYED: Final = "deploy"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "migrate",
        help="write all that moves an endpoint: the model folder, manifests and a page",
        description="Read what runs a model today, and write its model folder, the files that "
        "deploy it, and a page: what stays, what changes, what you must decide. Sources: an "
        "LMI folder, one of Triton's vLLM backend, model.tar.gz, a file of NAME=VALUE lines, and "
        "the JSON that `aws sagemaker describe-model`, `describe-endpoint-config` and "
        "`describe-inference-component` print. If the model is refused, the page has the reasons.",
        examples=(
            "lmi-backend migrate model.tar.gz --output moved --to kubernetes",
            "lmi-backend migrate model.json endpoint-config.json --output moved --to compose",
        ),
        statuses={
            0: "it was written",
            2: "the model, a source or the files for --to are refused",
            3: "it was written, but the model cannot be fetched: its size is not known",
        },
    )
    parser.add_argument("sources", nargs="+", type=path_of, metavar="SOURCE", help="see above")
    parser.add_argument(
        "--output", type=path_of, required=True, metavar="FOLDER", help="write everything here"
    )
    parser.add_argument("--to", choices=TARGETS, help="who runs it: writes its files")
    parser.add_argument("--force", action="store_true", help="write over files that differ")
    add_machine(parser)
    parser.set_defaults(run=_migrate)


def _migrate(arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    source = read_sources(arguments.sources, output)
    if arguments.gpus is None and source.gpus is not None:
        arguments.gpus = source.gpus.number
        if arguments.gpu_memory is None:
            arguments.gpu = source.gpus.kind
    with _variables(source.variables):
        folders = [str(source.folder)] if source.folder else []
        models = find_models(folders, output / "models")
        if len(models) > 1:
            raise ConfigurationError(f"there are {len(models)} models; accepted: one of them")
        return _write_all(models[0], source, arguments)


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Have the variables of the container in the block: all that reads options looks for them."""
    environment = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)


def _write_all(model: LmiFolder, source: PresentServer, arguments: argparse.Namespace) -> int:
    machine = machine_of(arguments)
    hardware = machine.hardware()
    (examined,) = examine([model], machine, hardware)
    decisions = [*source.decisions, *examined.problems, *_other_models(examined)]
    if not machine.for_another_machine:
        decisions.append(f"it is planned for {hardware.title}: --gpus or --gpu names another")
    decisions += _of_replicas(source, arguments.to)
    status, commands = 0, [_serve(model, source, arguments.output)]
    if not examined.problems:
        decisions += [
            f"set {name} where the server runs" for name in left_to_the_server(examined.options)
        ]
        with _variables(_weights(source, examined)):
            repository = ["--repository", str(arguments.output / "models")]
            _run(convert, ["convert", *_of_model(source), *repository], arguments)
            status, refusal = _deployed(source, arguments)
        decisions += refusal
        if arguments.to and not refusal:
            commands = _starts(arguments.to, arguments.output / _DEPLOYED)
    page = _page(model, examined, source, decisions, commands, hardware)
    path = arguments.output / _PAGE
    path.write_text(page, encoding="utf-8")
    sys.stdout.write(f"{path}\n")
    for problem in examined.problems:
        say(f"{model.name} is refused: {problem}")
    return REFUSED if examined.problems else status


def _other_models(examined: Examined) -> Iterator[str]:
    names = {common.MODEL_ID.name, *common.MODEL_ID.aliases, *common.MODEL_ID.variables}
    named = [(each, status.word) for each, status in examined.settings if each.name in names]
    served = [each for each, word in named if word == "mapped"]
    for other, word in named:
        if served and word == "ignored" and other.value != served[0].value:
            yield f"two models are named: {served[0].written} is served, {other.written} is not"


def _of_replicas(source: PresentServer, target: str | None) -> list[str]:
    if source.replicas <= 1 or target in deploy.OF_PODS:
        return []
    where = f"--to {target} runs one server" if target else "`serve` runs one server"
    return [
        f"there are {source.replicas} instances or copies; {where}: start it on as many machines, "
        "or use --to kubernetes"
    ]


def _serve(model: LmiFolder, source: PresentServer, output: Path) -> list[str]:
    # The copy has the variables too.
    is_copied = source.variables or source.folder is None
    folder = output / "models" / model.name if is_copied else source.folder
    return ["lmi-backend", "serve", str(folder)]


def _weights(source: PresentServer, examined: Examined) -> dict[str, str]:
    """Return the variable that names the weights, if they are in the folder: no copy is made."""
    folder = source.folder
    if examined.options.is_set(common.MODEL_ID):
        return {}
    has_weights = folder is not None and any((folder / name).is_file() for name in MODEL_FILES)
    return {MODEL_ID: str(folder.resolve())} if folder is not None and has_weights else {}


def _starts(target: str, place: Path) -> list[list[str]]:
    unit = next(place.glob("*.service"), place).name
    return {
        "kubernetes": [["kubectl", "apply", "-k", str(place)]],
        "helm": [["helm", "install", "lmi-backend", str(place)]],
        "compose": [["docker", "compose", "-f", f"{place}/compose.yaml", "up", "--detach"]],
        "systemd": [
            ["sudo", "cp", f"{place}/{unit}", "/etc/systemd/system/"],
            ["sudo", "systemctl", "enable", "--now", unit],
        ],
    }[target]


def _deployed(source: PresentServer, arguments: argparse.Namespace) -> tuple[int, list[str]]:
    if not arguments.to:
        return 0, ["choose who runs it: `lmi-backend deploy`, or `migrate` with --to"]
    folder = arguments.output / _DEPLOYED
    words = ["--to", arguments.to, "--output", str(folder)]
    if source.replicas and arguments.to in deploy.OF_PODS:
        words += ["--replicas", str(source.replicas)]
    try:
        status = _run(deploy, ["deploy", *_of_model(source), *words], arguments)
    except ConfigurationError as error:
        return REFUSED, [f"`deploy --to {arguments.to}` refuses: {error}"]
    return status, []


def _of_model(source: PresentServer) -> list[str]:
    return [str(source.folder)] if source.folder else []


def _run(module: ModuleType, words: Sequence[str], arguments: argparse.Namespace) -> int:
    """Run another command as if it had been typed, for the same machine; return its status."""
    parser = Parser()
    module.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(words)
    shared = vars(machine_of(arguments)) | {"force": arguments.force}
    status: int = parsed.run(argparse.Namespace(**vars(parsed) | shared))
    return status


def _left(source: PresentServer, examined: Examined) -> list[dict[str, str]]:
    names = {setting.name for setting, _ in examined.settings}
    return [
        row_of(WrittenSetting(name, value, ORIGIN), Status("ignored", why_left(name, value)))
        for name, value in source.environment.items()
        if name not in names
    ]


def _page(
    model: LmiFolder,
    examined: Examined,
    source: PresentServer,
    decisions: list[str],
    commands: list[list[str]],
    hardware: Hardware,
) -> str:
    recorded = source.capture or _RECORDED
    if not source.capture:
        decisions = [
            *decisions,
            "record requests: with mitmproxy (docs/replay.md), or SageMaker's data capture",
        ]
    return page_of(
        name=model.name,
        what=f"{examined.redact(examined.what)}. Planned for {hardware.title}",
        settings=[examined.redact.each(row) for row in (*examined.rows, *_left(source, examined))],
        changes=[*source.changes, *examined.notes],
        decisions=[examined.redact(each) for each in decisions],
        commands=[
            *commands,
            ["lmi-backend", "replay", recorded, "--url", f"http://127.0.0.1:{PORT}"],
        ],
    )
