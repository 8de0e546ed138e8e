"""The user's own code: LMI's handlers and formatters, run in the worker as they are."""
