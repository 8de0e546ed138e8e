"""The `lmi-backend` command."""
