"""Keep a tritonserver up from a process next to it: start, health, restart, drain, stop."""
