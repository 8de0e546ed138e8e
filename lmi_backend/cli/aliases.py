"""--clients: further models that share the workers of the served ones, and their names."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from lmi_backend.errors import ConfigurationError
from lmi_backend.repository.variants import MAIN, VARIANTS, Alias
from lmi_backend.repository.writer import check_model_name


def add_clients(parser: argparse.ArgumentParser) -> None:
    forms = ". ".join(
        f"{variant.clients} = {variant.model_name('NAME')}, for {variant.help}"
        for variant in VARIANTS.values()
    )
    parser.add_argument(
        "--clients",
        type=_aliases,
        default=[],
        metavar="A,B=NAME",
        help=f"further models that share the workers of NAME, for other clients. {forms}. "
        f"{MAIN.clients} is always there. With =NAME the model is called so, for clients that "
        "have a name built in: trtllm=ensemble,trtllm=tensorrt_llm",
    )


def model_names(models: Sequence[str], aliases: Sequence[Alias]) -> list[str]:
    chosen = [alias.name for alias in aliases if alias.name]
    if chosen and len(models) > 1:
        message = f"--clients {chosen[0]}: names one model, but there are {len(models)} to share"
        raise ConfigurationError(f"{message}; accepted: one folder, or --clients without =NAME")
    names = [
        name for model in models for name in (model, *(each.model_name(model) for each in aliases))
    ]
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        message = f"--clients: {count} models would be named {name}"
        raise ConfigurationError(f"{message}; accepted: different names")
    return names


def _aliases(text: str) -> list[Alias]:
    words = dict.fromkeys(word.strip() for word in text.split(",") if word.strip())
    return [alias for word in words if (alias := _alias(word)).variant is not MAIN]


def _alias(word: str) -> Alias:
    clients, equals, name = (part.strip() for part in word.partition("="))
    if clients not in VARIANTS:
        message = f"{word!r} is unknown; accepted: {', '.join(VARIANTS)}, or one of them=NAME"
        raise argparse.ArgumentTypeError(message)
    if not equals:
        return Alias(VARIANTS[clients])
    if clients == MAIN.clients:
        message = f"{word!r}: {MAIN.clients} is the model itself; accepted: a folder of that name"
        raise argparse.ArgumentTypeError(message)
    try:
        return Alias(VARIANTS[clients], check_model_name(name))
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(f"{word!r}: {error}") from error
