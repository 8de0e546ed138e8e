"""What the commands share: help with examples and exit statuses, and arguments of several."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from lmi_backend.cli.flags import split
from lmi_backend.options.hints import closest
from lmi_backend.printable import printable
from lmi_backend.supervisor.ports import Ports, free_port

PORTS: Final = {"http": 8000, "grpc": 8001, "metrics": 8002}
DEFAULT_URL: Final = f"http://127.0.0.1:{PORTS['http']}"
_MEASURED: Final = "; NVIDIA's AIPerf measures a server, as the end of --help shows"
MOST_SECONDS: Final = 86_400
_USUAL: Final = {
    0: "it was done",
    1: "it failed",
    2: "an argument, an option or the environment is wrong",
}


class Parser(argparse.ArgumentParser):
    """Adds examples and exit statuses to its help.

    Args:
        takes_flags: whether options of a model are flags of it too.
        takes_words: whether what is no option of it is one of its `words`.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        takes_flags: bool = False,
        takes_words: bool = False,
        statuses: Mapping[int, str] = {},
        **more: Any,
    ) -> None:
        super().__init__(*args, **{"formatter_class": Formatter, **more})
        self._takes_flags, self._takes_words = takes_flags, takes_words
        self.examples, self.statuses = examples, dict(sorted({**_USUAL, **statuses}.items()))
        if examples:
            lines = ["examples:", *(f"  {each}" for each in examples), "", "exit status:"]
            lines += [f"  {status}  {meaning}" for status, meaning in self.statuses.items()]
            self.epilog = "\n".join(lines)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2, and name the choice that was probably meant."""
        given, is_choice, accepted = message.partition("' (choose from ")
        if is_choice:
            word, words = given.rpartition("'")[2], re.findall(r"[\w-]+", accepted)
            message += _MEASURED if word in ("bench", "benchmark") else closest(word, words)
        super().error(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line; `flags` of its result has the options of a model."""
        own, flags = split(args, self._option_string_actions) if self._takes_flags else (args, [])
        read, left = super().parse_known_args(own, namespace)
        if self._takes_flags:
            read.flags = flags
        if self._takes_words:
            read.words += left
        return read, [] if self._takes_words else left


class Formatter(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "".join(f"{indent}{line}\n" for line in text.splitlines()).rstrip("\n")
        return super()._fill_text(text, width, indent)


def add_timeout(parser: argparse.ArgumentParser, seconds: float, what: str) -> None:
    text = f"{what} (default %(default)s)"
    kind = number(float, 0, MOST_SECONDS)
    parser.add_argument("--timeout", type=kind, default=seconds, metavar="SECONDS", help=text)


def add_ports(parser: argparse.ArgumentParser) -> None:
    text = "address on which Triton's own ports listen, IPv4 or IPv6 (%(default)s)"
    parser.add_argument("--triton-host", default="127.0.0.1", metavar="HOST", help=text)
    for name, usual in PORTS.items():
        parser.add_argument(
            f"--{name}-port", type=port, default=usual, help="default %(default)s; 0: a free one"
        )


def ports_of(arguments: argparse.Namespace) -> Ports:
    return Ports(
        arguments.triton_host, arguments.http_port, arguments.grpc_port, arguments.metrics_port
    )


def comma_list(text: str, accepted: Collection[str]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in accepted:
            raise not_accepted(name, ", ".join(accepted))
    return names


def not_accepted(text: str, accepted: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{printable(text)}; accepted: {accepted}")


def matching(form: re.Pattern[str], what: str) -> Callable[[str], str]:
    """Return what reads a text that matches, for `add_argument`."""

    def read(text: str) -> str:
        if form.fullmatch(text):
            return text
        raise not_accepted(text, what)

    return read


def number(kind: Callable[[str], Any], least: float, most: float) -> Callable[[str], Any]:
    """Return what reads a number between two others, for `add_argument`."""

    def read(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if least <= (value := kind(text)) <= most:
                return value
        raise not_accepted(text, f"a number, {least:g} to {most:g}")

    return read


def path_of(text: str) -> Path:
    """Return a path; an empty one is a variable that is not set, and no working folder."""
    if not text:
        raise not_accepted(text, "a path")
    return Path(text)


def port(text: str) -> int:
    """Return a port; for 0 one that is free."""
    return int(number(int, 0, 65_535)(text)) or free_port()


def percent(text: str) -> float:
    """Return the number before a percent sign, which may be missing."""
    value: float = number(float, 0, 100)(text.removesuffix("%"))
    return value
