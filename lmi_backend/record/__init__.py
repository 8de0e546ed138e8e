"""A proxy that changes nothing, and writes the requests and answers that pass it into files."""
