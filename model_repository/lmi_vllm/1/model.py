"""Served by lmi-backend; what it runs is in ../serving.properties."""

from lmi_backend.triton.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
