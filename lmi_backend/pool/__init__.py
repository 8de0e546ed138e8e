"""The workers of one model, in the stub: launched, watched, chosen, restarted."""
