"""vLLM through its AsyncLLM."""
