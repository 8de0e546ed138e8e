"""Serve large language models on NVIDIA Triton from an LMI `serving.properties`."""

__all__ = ["__version__"]

__version__ = "0.2.0"
