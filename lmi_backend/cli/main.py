"""Entry point: parse the command line, run a command, turn errors into one line."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Sequence

from lmi_backend import __version__
from lmi_backend.cli import (
    api_key,
    chat,
    check,
    convert,
    deploy,
    doctor,
    frontend,
    join,
    migrate,
    options,
    plan,
    replay,
    running,
    serve,
)
from lmi_backend.cli.arguments import Parser
from lmi_backend.errors import ConfigurationError, LmiError
from lmi_backend.machine import machine_problem
from lmi_backend.printable import log, say
from lmi_backend.redaction import Redactor


def main(argv: Sequence[str] | None = None) -> int:
    open_missing()
    if not (sys.argv[1:] if argv is None else argv):
        parser().print_help(sys.stderr)
        return 2
    try:
        arguments = parser().parse_args(sys.argv[1:] if argv is None else argv)
        status = int(arguments.run(arguments))
        sys.stdout.flush()
    except LmiError as error:
        say(Redactor(os.environ)(str(error)))
        # As argparse does for what was typed wrong.
        return 2 if isinstance(error, ConfigurationError) else 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001  a fault of ours, whose text may quote what the user wrote
        redact = Redactor(os.environ)
        if problem := machine_problem(error):
            say(redact(problem))
        else:
            log(redact(traceback.format_exc()))
        return 1
    finally:
        abandon_unread()
    return status


def parser() -> argparse.ArgumentParser:
    whole = Parser(
        prog="lmi-backend",
        description="Serve large language models on NVIDIA Triton from an LMI serving.properties.",
        epilog="Start with: lmi-backend serve FOLDER   (a folder with a serving.properties). "
        "Measure a server with NVIDIA's AIPerf (pip install aiperf): aiperf profile --model NAME "
        "--url http://localhost:8080 --endpoint-type chat --streaming",
    )
    whole.add_argument("--version", action="version", version=__version__)
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        *(serve, frontend, api_key, running, chat, join, doctor, check, plan),
        *(deploy, options, convert, migrate, replay),
    ):
        module.add_commands(commands)
    return whole


def open_missing() -> None:
    """Open the streams that the command was started without on /dev/null.

    Otherwise the next file or socket gets such a number, and a child writes its log there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
            # Children get it as well.
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def abandon_unread() -> None:
    """Send what is left of output that nobody reads to /dev/null.

    Python would write what is buffered at its end, fail, and change the exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as null:
                os.dup2(null.fileno(), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
