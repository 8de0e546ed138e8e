from .llm import LLM
from .mpi_session import MpiCommSession

__all__ = ["LLM", "MpiCommSession"]
