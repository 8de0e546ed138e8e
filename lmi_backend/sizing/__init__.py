"""What a model takes: facts of its config.json, parameters, weights, KV cache, memory."""
