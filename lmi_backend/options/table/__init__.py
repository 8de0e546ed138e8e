"""The one table of options. Order is the order of `lmi-backend options`."""

from __future__ import annotations

from typing import Any

from lmi_backend.options.option import Option
from lmi_backend.options.table import common, ended, server, vllm

OPTIONS: tuple[Option[Any], ...] = (
    tuple(
        value
        for module in (common, server, vllm)
        for value in vars(module).values()
        if isinstance(value, Option)
    )
    + ended.rows()
)
"""Every option, by declaration."""

BY_KEY: dict[str, Option[Any]] = {
    key: option for option in OPTIONS for key in (option.name, *option.aliases)
}
"""Every key a properties file may hold, aliases included."""

__all__ = ["BY_KEY", "OPTIONS", "common", "ended", "server", "vllm"]
