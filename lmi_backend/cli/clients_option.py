"""The option --clients: for whom models are written beside the main one."""

from __future__ import annotations

import argparse

from lmi_backend.repository.variants import MAIN, VARIANTS, Variant


def add_clients(parser: argparse.ArgumentParser) -> None:
    """Add the option; its value is the list of entries beside the main one."""
    forms = "; ".join(
        f"{entry.clients} = {entry.model_name('NAME')}, for {entry.help}"
        for entry in VARIANTS.values()
    )
    parser.add_argument(
        "--clients",
        type=_entries,
        default=[],
        metavar="A,B",
        help=f"further models that share the workers of NAME, for other clients: {forms}. "
        f"{MAIN.clients} is always there",
    )


def _entries(text: str) -> list[Variant]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in VARIANTS:
            message = f"{name!r} is unknown; accepted: {', '.join(VARIANTS)}"
            raise argparse.ArgumentTypeError(message)
    return [VARIANTS[name] for name in dict.fromkeys(names) if VARIANTS[name] is not MAIN]
