"""TensorRT-LLM through its LLM API, as 1.0 to 1.3.0rc29 document it; never run here."""
