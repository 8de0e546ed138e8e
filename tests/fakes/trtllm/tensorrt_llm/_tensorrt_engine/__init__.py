from ..llmapi.llm import LLM

__all__ = ["LLM"]
