"""TensorRT-LLM through its LLM API. Built to the written contract of 1.2.1; never run here."""
