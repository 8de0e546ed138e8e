"""The workers of one model, in the stub: launched, read, chosen, restarted."""
