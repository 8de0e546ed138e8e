"""The last part of each command's help: examples, and what an exit status means."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

FINE: Final = "0  it was done"
WRONG: Final = "2  an argument, an option or the environment is wrong"
STOPPED: Final = "130  Ctrl-C"

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "serve": (
        "lmi-backend serve llama",
        "lmi-backend serve llama qwen --require llama --log-file serve.log",
        "lmi-backend serve llama --host 0.0.0.0 --api-keys keys",
    ),
    "frontend": ("lmi-backend frontend --port 8080 --triton-url http://127.0.0.1:8000",),
    "api-key": ("lmi-backend api-key alice --running 8 >> keys",),
    "drain": (
        "lmi-backend drain http://127.0.0.1:8000 --timeout 60",
        "lmi-backend drain --worker all",
    ),
    "restart": ("lmi-backend restart --front-end http://127.0.0.1:8080",),
    "health": ("lmi-backend health", "lmi-backend health --model llama --live"),
    "generate": (
        'lmi-backend generate "The capital of France is"',
        'lmi-backend generate "Tell a story:" --stream --url http://127.0.0.1:8080',
    ),
    "join": ("lmi-backend join llama --node-rank 1",),
    "doctor": ("lmi-backend doctor", "lmi-backend doctor llama --json"),
    "check": ("lmi-backend check llama", "lmi-backend check llama --gpus 8 --gpu-memory 80GiB"),
    "plan": (
        "lmi-backend plan llama --gpus 8 --gpu-memory 80GiB --nodes 2",
        "lmi-backend plan llama --json",
    ),
    "deploy": (
        "lmi-backend deploy llama --to kubernetes --output fleet --gpus 1 --gpu-memory 80GiB",
        "kubectl apply -k fleet",
        "lmi-backend deploy llama --to helm --output chart --gpus 1 --gpu-memory 80GiB",
        "helm install llama chart",
    ),
    "options": (
        "lmi-backend options",
        "lmi-backend options max_model_len",
        "lmi-backend options --tensor-parallel-size 4",
    ),
    "render": ("lmi-backend render llama > config.pbtxt",),
    "convert": ("lmi-backend convert llama qwen --repository models",),
    "migrate": (
        "lmi-backend migrate model.tar.gz --output moved --to kubernetes",
        "lmi-backend migrate model.json endpoint-config.json --output moved --to compose",
        "lmi-backend migrate variables.env --output moved --gpus 1 --gpu-memory 24GiB",
    ),
    "record": (
        "lmi-backend record recorded --url http://127.0.0.1:8080 --port 8090",
        "lmi-backend record recorded --url https://old --sample 5% --max-disk 500MiB",
    ),
    "replay": (
        "lmi-backend replay recorded.jsonl --url http://127.0.0.1:8080",
        "lmi-backend replay s3://bucket/capture --against http://old:8080 --url http://new:8080",
        "lmi-backend replay session.har --allow 1% --ignore 'header:x-*' --json > report.json",
    ),
    "install-backend": ("lmi-backend install-backend /opt/tritonserver/backends",),
    "completion": (
        "lmi-backend completion bash > ~/.local/share/bash-completion/completions/lmi-backend",
        "lmi-backend completion zsh > ~/.zfunc/_lmi-backend",
        "lmi-backend completion fish > ~/.config/fish/completions/lmi-backend.fish",
    ),
}
"""By the command's name."""
STATUSES: Final[dict[str, tuple[str, ...]]] = {
    "serve": (
        "0  it was told to stop",
        "1  a model or the server did not start, or stopped for good (--on-failure exit)",
        WRONG,
    ),
    "frontend": ("0  it was told to stop", "1  it failed", WRONG),
    "drain": ("0  all requests finished", "1  some were cut, or no server answers", WRONG),
    "restart": (
        "0  the front end is new, and all requests finished",
        "1  the old one stays, or some requests were cut",
        WRONG,
        STOPPED,
    ),
    "health": ("0  all models take requests", "1  one does not, or no server answers", WRONG),
    "generate": (FINE, "1  the server does not answer, or refuses the request", WRONG, STOPPED),
    "join": ("0  it was told to stop", "1  the first machine cannot be reached", WRONG),
    "doctor": ("0  nothing would fail", "1  something would fail", WRONG),
    "plan": (
        FINE,
        "1  it failed",
        WRONG,
        "3  the model cannot be fetched; the plan does without its size",
        STOPPED,
    ),
    "deploy": (
        FINE,
        "1  it failed",
        WRONG,
        "3  it was written, but the model cannot be fetched: its size is not known",
        STOPPED,
    ),
    "migrate": (
        "0  it was written",
        "1  it failed",
        "2  the model or a source is refused",
        STOPPED,
    ),
    "record": ("0  it was told to stop", "1  it failed", WRONG),
    "replay": (
        "0  the answers are the same, or no more differ than --allow permits",
        "1  more answers differ",
        WRONG,
        STOPPED,
    ),
    "check": ("0  no option is refused", "2  an option is refused", STOPPED),
}
"""By the command's name; of others these are `USUAL`."""
USUAL: Final = (FINE, "1  it failed", WRONG, STOPPED)


class Parser(argparse.ArgumentParser):
    """Says what may have been meant, and leaves the lines of an epilog as they are."""

    def error(self, message: str) -> NoReturn:
        """Write a usage error, with the nearest name that is accepted."""
        super().error(f"{message}{_meant(message, self)}")


class Formatter(argparse.HelpFormatter):
    """Wraps texts of one line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "".join(f"{indent}{line}\n" for line in text.splitlines()).rstrip("\n")
        return super()._fill_text(text, width, indent)


def add_endings(commands: argparse._SubParsersAction[Any]) -> None:
    """Give each command its examples and exit statuses."""
    for name, parser in commands.choices.items():
        lines = ["examples:", *(f"  {each}" for each in EXAMPLES[name]), "", "exit status:"]
        lines += [f"  {each}" for each in STATUSES.get(name, USUAL)]
        parser.epilog = "\n".join(lines)
        parser.formatter_class = Formatter


def _meant(message: str, parser: argparse.ArgumentParser) -> str:
    """Return what the user may have meant by an argument that is not accepted."""
    _, _, choice = message.partition("invalid choice: '")
    word, is_choice, accepted = choice.partition("' (choose from ")
    if is_choice:
        words = [each.strip(" '") for each in accepted.rstrip(")").split(",")]
        near = difflib.get_close_matches(word, words, 1)
    elif found := re.search(r"unrecognized arguments: (--[\w-]+)", message):
        options = list(_options(parser))
        if found[1] in options:
            return "; other commands have it: see --help of this one"
        near = difflib.get_close_matches(found[1], options, 1)
    else:
        near = []
    return f"; did you mean {near[0]}?" if near else ""


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of the commands below it."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _options(below)
