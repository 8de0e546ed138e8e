"""Both sides of a worker's socket: messages, frames, handshake, flush policy, variables."""
