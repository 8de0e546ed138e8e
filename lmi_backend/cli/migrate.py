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
from lmi_backend.cli.arguments import Parser
from lmi_backend.cli.check import REFUSED, Examined, examine, row_of
from lmi_backend.cli.folders import LmiFolder, find_models
from lmi_backend.cli.planning import add_machine, machine_of
from lmi_backend.deploy.files import TARGETS
from lmi_backend.errors import ConfigurationError
from lmi_backend.front_end_settings import PORT
from lmi_backend.migrate.page import Migration, page_of
from lmi_backend.migrate.sources import PresentServer, read_sources, why_left
from lmi_backend.options.model_store import MODEL_FILES, MODEL_ID
from lmi_backend.options.sources import ORIGIN
from lmi_backend.options.spec import Status, WrittenSetting
from lmi_backend.repository.environment import left_to_the_server

if TYPE_CHECKING:
    from types import ModuleType

_PAGE: Final = "MIGRATION.md"
_RECORDED: Final = "recorded"


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
        statuses={0: "it was written", 2: "the model or a source is refused"},
    )
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="see above")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FOLDER", help="write everything here"
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
        models = find_models(folders, os.environ, output / "models")
        if len(models) > 1:
            raise ConfigurationError(f"there are {len(models)} models; accepted: one of them")
        return _write_all(models[0], source, arguments)


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Have the variables of the container in the block: all that reads options looks for them."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _write_all(model: LmiFolder, source: PresentServer, arguments: argparse.Namespace) -> int:
    """Write the model folder, the files that deploy it and the page; return the exit status."""
    machine = machine_of(arguments)
    (examined,) = examine([model], machine, machine.hardware())
    decisions = [*source.decisions, *examined.problems]
    if not examined.problems:
        decisions += [
            f"set {name} where the server runs" for name in left_to_the_server(examined.options)
        ]
        with _variables(_weights(source)):
            repository = ["--repository", str(arguments.output / "models")]
            _run(convert, ["convert", *_of_model(source), *repository], arguments)
        decisions += _deployed(source, arguments)
    page = page_of(_migration(model, examined, source, decisions, arguments.output))
    path = arguments.output / _PAGE
    path.write_text(page, encoding="utf-8")
    sys.stdout.write(f"{path}\n")
    return REFUSED if examined.problems else 0


def _weights(source: PresentServer) -> dict[str, str]:
    """Return the variable that names the weights, if they are in the folder: no copy is made."""
    folder = source.folder
    has_weights = folder is not None and any((folder / name).is_file() for name in MODEL_FILES)
    return {MODEL_ID: str(folder.resolve())} if folder is not None and has_weights else {}


def _deployed(source: PresentServer, arguments: argparse.Namespace) -> list[str]:
    """Write the files for a target; return what is in the way, if something is."""
    if not arguments.to:
        return ["choose who runs it: `lmi-backend deploy`, or `migrate` with --to"]
    folder = arguments.output / "deploy"
    words = ["--to", arguments.to, "--output", str(folder)]
    if source.replicas:
        words += ["--replicas", str(source.replicas)]
    try:
        _run(deploy, ["deploy", *_of_model(source), *words], arguments)
    except ConfigurationError as error:
        return [f"`deploy --to {arguments.to}` refuses: {error}"]
    return []


def _of_model(source: PresentServer) -> list[str]:
    return [str(source.folder)] if source.folder else []


def _run(module: ModuleType, words: Sequence[str], arguments: argparse.Namespace) -> None:
    """Run another command as if it had been typed, for the same machine."""
    parser = Parser()
    module.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(words)
    shared = vars(machine_of(arguments)) | {"force": arguments.force}
    parsed.run(argparse.Namespace(**vars(parsed) | shared))


def _left(source: PresentServer, examined: Examined) -> list[dict[str, str]]:
    """Return a row for each variable that sets no option."""
    shown = {setting.name for setting, _ in examined.settings}
    return [
        row_of(WrittenSetting(name, value, ORIGIN), Status("ignored", why_left(name, value)))
        for name, value in source.environment.items()
        if name not in shown
    ]


def _migration(
    model: LmiFolder, examined: Examined, source: PresentServer, decisions: list[str], output: Path
) -> Migration:
    # The copy has the variables too.
    is_copied = source.variables or source.folder is None
    folder = output / "models" / model.name if is_copied else source.folder
    recorded = source.capture or _RECORDED
    if not source.capture:
        decisions = [
            *decisions,
            "record requests: with mitmproxy (docs/replay.md), or SageMaker's data capture",
        ]
    return Migration(
        name=model.name,
        what=examined.redact(examined.what),
        settings=[examined.redact.each(row) for row in (*examined.rows, *_left(source, examined))],
        changes=[*source.changes, *examined.notes],
        decisions=[examined.redact(each) for each in decisions],
        serve=["serve", str(folder)],
        replay=["replay", recorded, "--url", f"http://127.0.0.1:{PORT}"],
    )
