"""LMI's and DJLServing's clients."""
