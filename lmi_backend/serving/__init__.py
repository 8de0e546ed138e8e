"""Many requests, one pool: admission, states, sending, watching."""
