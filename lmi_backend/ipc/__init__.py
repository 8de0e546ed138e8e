"""Both ends of a worker's socket: messages, frames, handshake, flush policy, names of variables."""
