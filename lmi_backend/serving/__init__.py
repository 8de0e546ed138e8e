"""Many requests, one pool: admission, sessions, sending, watching."""
