"""What the engines share that generate through Hugging Face's `generate`."""
