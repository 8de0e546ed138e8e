"""LMI's answers as it writes them: one object, lines of JSON, or server-sent events."""
