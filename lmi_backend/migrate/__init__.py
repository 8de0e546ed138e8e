"""What moves an endpoint here: read its sources, record its traffic, replay and compare."""
