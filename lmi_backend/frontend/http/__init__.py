"""HTTP as the front end speaks it: connections, exchanges, routes, TLS, keys and access."""
