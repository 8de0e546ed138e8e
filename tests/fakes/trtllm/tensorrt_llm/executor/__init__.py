from .result import CompletionOutput, RequestOutput

__all__ = ["CompletionOutput", "CppExecutorError", "RequestOutput"]


class CppExecutorError(RuntimeError):
    def __init__(self, message: str, stack_trace: str = "") -> None:
        super().__init__(message)
        self.message, self.stack_trace = message, stack_trace
