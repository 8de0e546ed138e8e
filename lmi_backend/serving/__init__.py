"""The requests of one model: admission, state, sending, cancellation, stats."""
