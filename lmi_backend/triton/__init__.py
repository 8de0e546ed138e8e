"""Triton's Python backend: the only folder that knows its stub."""

import sys

# The stub looks for modules in its working folder first: a user's json.py there is none of them.
sys.path[:] = filter(None, sys.path)
