"""`lmi-backend frontend`: one HTTP port for all clients, beside a server that runs."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path

from lmi_backend.errors import ConfigurationError
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "frontend",
        help="one HTTP port for OpenAI's, LMI's, SageMaker's and other clients",
        description="Serve the models of a tritonserver of this machine to OpenAI's, LMI's, "
        "SageMaker's and Text Generation Inference's clients on one HTTP port, and pass Triton's "
        "own V2 paths on. `serve --port` starts it by itself; use this command beside a "
        "tritonserver that you start yourself, as the same user. It finds models as they are "
        "loaded, and may be started before the server.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="default %(default)s")
    parser.add_argument(
        "--triton-url",
        default="http://127.0.0.1:8000",
        metavar="URL",
        help="Triton's HTTP port, to which V2 paths are passed (default %(default)s)",
    )
    parser.add_argument(
        "--run-folder",
        type=Path,
        metavar="FOLDER",
        help="where the models' endpoints are; default: where the server makes temporary files",
    )
    parser.set_defaults(run=_frontend)


def _frontend(arguments: argparse.Namespace) -> int:
    try:
        from lmi_backend.frontend.app import Settings  # noqa: PLC0415  an extra of the package
        from lmi_backend.frontend.server import serve  # noqa: PLC0415
    except ImportError as error:
        message = f"the front end needs lmi-backend[frontend]: {error}"
        raise ConfigurationError(message) from error
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    base = arguments.run_folder or os.environ.get(RUN_DIR_VARIABLE) or tempfile.gettempdir()
    settings = Settings(base=Path(base), triton_url=arguments.triton_url)
    return serve(settings, arguments.host, arguments.port)
