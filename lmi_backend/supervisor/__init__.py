"""Keep a tritonserver up from beside it: start, health, restart, drain, and its end."""
