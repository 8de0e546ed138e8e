"""LMI's answers as it writes them: one object, lines of JSON, or server-sent events."""

from lmi_backend.schema.formats.asked import Asked, Format
from lmi_backend.schema.formats.choose import NAMES, make_format

__all__ = ["NAMES", "Asked", "Format", "make_format"]
