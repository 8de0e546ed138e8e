"""Who generates: one contract, implemented once an engine. Importing this loads no engine."""
