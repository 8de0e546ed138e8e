"""What the user said: the option table, `.properties` grammar, environment, precedence."""

from lmi_backend.options.resolve import examine_options, load_options, resolve_options
from lmi_backend.options.sources import FILE_NAME
from lmi_backend.options.spec import LmiOptions
from lmi_backend.options.table import OPTIONS

__all__ = [
    "FILE_NAME",
    "OPTIONS",
    "LmiOptions",
    "examine_options",
    "load_options",
    "resolve_options",
]
