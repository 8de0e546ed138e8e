"""OpenAI's bodies for engines without a server of their own; vLLM answers with its own."""
