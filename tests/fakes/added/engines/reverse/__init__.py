"""The implementation of the added engine."""
