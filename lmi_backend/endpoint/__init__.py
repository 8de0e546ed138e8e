"""The stub's own Unix socket, through which others of this machine use a model's pool."""
