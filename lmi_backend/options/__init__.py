"""What the user said: the option table, `.properties` grammar, environment, precedence."""

from lmi_backend.options.resolve import FILE_NAME, LmiOptions, load_options, resolve_options
from lmi_backend.options.table import OPTIONS

__all__ = ["FILE_NAME", "OPTIONS", "LmiOptions", "load_options", "resolve_options"]
