"""Hostile input without end, made by chance from a seed, for every reader that strangers reach: `make fuzz`."""
