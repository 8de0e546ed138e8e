"""What a client is, once: its paths, how its errors look, and how it reads an answer."""
