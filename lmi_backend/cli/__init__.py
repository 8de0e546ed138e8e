"""The `lmi-backend` command.

A module is a command, or what several share. What a user can correct is a ConfigurationError, which
`main` prints in a line.
"""
