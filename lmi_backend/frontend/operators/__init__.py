"""What the front end serves to operators and probes: health, state, metrics, management, page."""
