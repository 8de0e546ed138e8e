"""Who generates: one contract, and an adapter an engine. Importing this loads no engine."""
