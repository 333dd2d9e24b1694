"""Observes the GPUs of a node: which container uses how much of each card, and what it was admitted with."""
