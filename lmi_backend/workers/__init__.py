"""Where an engine runs: worker processes, and what is said to them."""
