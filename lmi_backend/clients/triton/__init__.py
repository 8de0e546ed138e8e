"""Clients of Triton's HTTP port."""
