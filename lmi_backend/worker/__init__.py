"""What runs in the engine's Python: one engine, or one rank of it, spoken to over a socket."""
