"""The part of LMI's `djl_python` that users' handlers and formatters import.

Names, arguments and behaviour follow LMI's documentation of custom handlers and formatters. This
folder alone is on the worker's path, so that nothing else of lmi_backend meets users' modules.
"""

from .inputs import Input
from .outputs import Output

__all__ = ["Input", "Output"]
