"""Resume requests whose process has died: which resume, from where, and which end."""
