"""Served by lmi-backend; config.pbtxt and serving.properties say what it runs."""

from lmi_backend.triton.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
